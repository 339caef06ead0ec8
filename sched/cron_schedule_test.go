package sched

import (
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func zoneOf(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// TestScheduleNext checks schedules over changes of zones' offsets and of calendars. The times are those after the
// first.
func TestScheduleNext(t *testing.T) {
	f := func(zone, schedule, from string, want ...string) {
		t.Helper()
		loc := zoneOf(t, zone)
		s, err := ParseSchedule(schedule)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, from)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			next, ok := s.Next(at, loc)
			if got := next.Format(time.RFC3339); !ok || got != w {
				t.Errorf("%s, %s, time %d after %s: got %s, want %s", zone, schedule, i+1, from, got, w)
				return
			}
			at = next
		}
	}
	const berlin = "Europe/Berlin"
	f("UTC", "0 0 13 * 5", "2026-02-14T00:00:00Z", "2026-02-20T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z")
	f("UTC", "0 0 */2 * 1", "2026-02-01T00:00:00Z", "2026-02-09T00:00:00Z", "2026-02-23T00:00:00Z") // a field with * joins with AND
	f("UTC", "0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z")
	f("UTC", "0 0 29 2 */7", "2076-03-01T00:00:00Z", "2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z")
	f("UTC", "59 23 31 12 *", "2026-12-31T23:58:59.999Z", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z")
	f("UTC", "5 4 * * fri-sun", "2026-11-23T00:00:00Z", "2026-11-27T04:05:00Z", "2026-11-28T04:05:00Z", "2026-11-29T04:05:00Z", "2026-12-04T04:05:00Z")
	f("UTC", "@every 90m", "2026-11-23T00:10:00Z", "2026-11-23T01:30:00Z", "2026-11-23T03:00:00Z")
	f("UTC", "@weekly", "2026-11-23T00:10:00Z", "2026-11-29T00:00:00Z")

	// Spring: a time that does not exist runs at the first instant after the gap, and once with what is due then.
	f(berlin, "30 2 * * *", "2026-03-28T00:00:00Z", "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00")
	f(berlin, "0,15,30 2,3 * * *", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00+02:00", "2026-03-29T03:15:00+02:00")
	f(berlin, "*/30 2 * * *", "2026-03-28T00:00:00Z", "2026-03-28T02:00:00+01:00", "2026-03-28T02:30:00+01:00", "2026-03-30T02:00:00+02:00")
	f(berlin, "0 * * * *", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00")
	// Autumn: a time that exists twice runs once, at the first; with * it runs in both hours.
	f(berlin, "30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00")
	f(berlin, "30 2 * * *", "2026-10-25T01:00:00Z", "2026-10-26T02:30:00+01:00") // asked in the second hour
	f(berlin, "0 3 * * *", "2026-10-25T00:59:00Z", "2026-10-25T03:00:00+01:00")
	f(berlin, "*/30 * * * *", "2026-10-24T23:45:00Z", "2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00")
	f("America/New_York", "30 2 * * *", "2026-03-08T00:00:00Z", "2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00")
	f("America/New_York", "30 1 * * *", "2026-11-01T04:00:00Z", "2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00")
	// Half an hour.
	f("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00:00Z", "2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00")
	f("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T13:00:00Z", "2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30")
	f("Australia/Lord_Howe", "*/15 * * * *", "2026-04-04T14:40:00Z", "2026-04-05T01:45:00+11:00", "2026-04-05T01:30:00+10:30", "2026-04-05T01:45:00+10:30", "2026-04-05T02:00:00+10:30")
	// A day that does not exist, 30 December 2011.
	f("Pacific/Apia", "0 12 * * *", "2011-12-29T00:00:00Z", "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00")
	f("Pacific/Apia", "0 12 30 12 *", "2011-12-01T00:00:00Z", "2011-12-31T00:00:00+14:00", "2012-12-30T12:00:00+14:00")
	// The day begins after the gap.
	f("America/Sao_Paulo", "@daily", "2018-11-03T12:00:00Z", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00")
	// Ramadan: the offset falls for a month.
	f("Africa/Casablanca", "30 2 * * *", "2026-02-14T12:00:00Z", "2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00Z")
	f("Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00:00Z", "2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00")
	f("Asia/Tehran", "30 0 * * *", "2022-03-21T12:00:00Z", "2022-03-22T01:00:00+04:30", "2022-03-23T00:30:00+04:30")
	f("Asia/Tehran", "30 23 * * *", "2022-09-21T12:00:00Z", "2022-09-21T23:30:00+04:30", "2022-09-22T23:30:00+03:30")
	f("Asia/Tehran", "30 2 21 3 *", "2023-01-01T00:00:00Z", "2023-03-21T02:30:00+03:30")
}

func TestParseSchedule(t *testing.T) {
	f := func(schedule, want string) {
		t.Helper()
		_, err := ParseSchedule(schedule)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", schedule, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", schedule, err, want)
		}
	}
	f("0-59/5,7 0-23 1-31 JAN-dec 0-7", "")
	f("  0\t0 1  1 SUN ", "")
	f("@every 1s", "")
	f("0 0 29 2 *", "")
	f("0 0 31 2 1", "") // Mondays of February
	f("0 0 30 2 *", "never runs")
	f("0 0 31 4,6,9,11 *", "never runs")
	f("0 0 31 2 */2", "never runs")
	f("", "five fields")
	f("* * * *", "five fields")
	f("0 * * * * *", "five fields")
	f("@reboot", "five fields")
	f("TZ=UTC * * * * *", "five fields")
	f("60 * * * *", `the minute "60" is none`)
	f("* 24 * * *", "hour")
	f("* * 0 * *", "day of the month")
	f("* * 32 * *", "day of the month")
	f("* * * 0 *", "from jan to dec")
	f("* * * * 8", "from sun to sat")
	f("-1 * * * *", "minute")
	f("5/10 * * * *", "5-59/10")
	f("*/0 * * * *", "step")
	f("*/-1 * * * *", "step")
	f("*/90 * * * *", "@every 90m")
	f("10-5 * * * *", "two ranges")
	f("1,,2 * * * *", "is none")
	f("1-2-3 * * * *", "is none")
	f("? * * * *", "is none")
	f("@every", "five fields")
	f("@every 0s", "is not from")
	f("@every -5m", "is not from")
	f("@every 1500ms", "whole seconds")
	f("@every 99999h", "is not from")
	f(strings.Repeat("1,", 1000)+"1 * * * *", "at most")
}

// naiveMatch reports whether a schedule has a minute of the calendar, by the texts of its fields.
func naiveMatch(t *testing.T, fields []string) func(time.Time) bool {
	var sets [len(cronFields)]uint64
	for i, f := range fields {
		set, err := parseCronField(i, f)
		if err != nil {
			t.Fatal(err)
		}
		sets[i] = set
	}
	in := func(field, value int) bool {
		return sets[field]>>value&1 != 0 || field == weekdayField && value == 0 && sets[field]>>7&1 != 0
	}
	both := strings.HasPrefix(fields[dayField], "*") || strings.HasPrefix(fields[weekdayField], "*")
	return func(at time.Time) bool {
		day, weekday := in(dayField, at.Day()), in(weekdayField, int(at.Weekday()))
		return in(minuteField, at.Minute()) && in(hourField, at.Hour()) && in(monthField, int(at.Month())) && (both && day && weekday || !both && (day || weekday))
	}
}

// naiveTimes returns the instants after from at which a schedule runs in a zone, up to an end: minute by minute.
func naiveTimes(t *testing.T, fields []string, zone *time.Location, from, to int64) (times []int64) {
	matches := naiveMatch(t, fields)
	wild := fields[minuteField][0] == '*' || fields[hourField][0] == '*'
	local := func(at int64) time.Time { return time.Unix(at, 0).In(zone) }
	asUTC := func(at int64) int64 { _, o := local(at).Zone(); return at + int64(o) }
	start := from - from%60 - 30*3600
	seen := asUTC(start)
	for at := start + 60; at <= to; at += 60 {
		due := false
		if wild {
			due = matches(local(at))
		} else {
			for m := seen + 60; m <= asUTC(at); m += 60 { // minutes of the calendar that the clock shows or has passed
				due = due || matches(time.Unix(m, 0).UTC())
			}
		}
		seen = max(seen, asUTC(at))
		if due && at > from {
			times = append(times, at)
		}
	}
	return times
}

// FuzzSchedule compares Next with a model that looks at each minute.
func FuzzSchedule(f *testing.F) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Tehran", "America/Sao_Paulo"}
	for _, schedule := range []string{"30 2 * * *", "*/7 * * * *", "0 0 13 * 5", "5,35 1-3 */2 * mon", "0 0 29 2 *", "@daily", "15 0,1,2,3 * 3,10,11 *", "* 2 * * 0", "@every 7m"} {
		for i := range zones {
			f.Add(schedule, uint8(i), int64(1774746000)) // 29 March 2026
			f.Add(schedule, uint8(i), int64(1325200000)) // 29 December 2011
			f.Add(schedule, uint8(i), int64(1792890000)) // 25 October 2026
		}
	}
	f.Fuzz(func(t *testing.T, text string, zoneNumber uint8, from int64) {
		s, err := ParseSchedule(text)
		if err != nil {
			return
		}
		zone := zoneOf(t, zones[int(zoneNumber)%len(zones)])
		for at, n := time.Unix(from, 0), 0; n < 5; n++ {
			next, ok := s.Next(at, zone)
			if !ok {
				break
			}
			if !next.After(at) {
				t.Fatalf("%q in %s: %v after %v", text, zone, next, at)
			}
			at = next
		}
		fields := strings.Fields(text)
		if word := cronWords[text]; word != "" {
			fields = strings.Fields(word)
		}
		if len(fields) != len(cronFields) || from < 0 || from > 4e9 {
			return
		}
		const days = 3
		to := from - from%60 + days*secondsOfDay
		var got []int64
		for at := time.Unix(from, 0); ; {
			next, ok := s.Next(at, zone)
			if !ok || next.Unix() > to {
				break
			}
			got, at = append(got, next.Unix()), next
		}
		if want := naiveTimes(t, fields, zone, from, to); !slices.Equal(got, want) {
			t.Errorf("%q in %s after %v: got %v, want %v", text, zone, time.Unix(from, 0).In(zone), got, want)
		}
	})
}
