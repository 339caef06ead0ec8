package sched

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Schedule says when a cron entry runs: at minutes of the calendar, or every so often. The zero Schedule never runs.
type Schedule struct {
	every  int64     // seconds; 0: the fields below count
	fields [5]uint64 // the values that match, as bits: minute, hour, day of the month, month, weekday
	// matchBoth reports whether a day must match by its number and by its weekday, because one of the two fields begins
	// with *. Otherwise one of them is enough.
	matchBoth bool
	// wild reports whether minute or hour begins with *. Such a schedule follows the clock on the wall through a change
	// of the zone's offset: it runs in a repeated hour again, and leaves a skipped hour out.
	wild bool
}

// The fields of a schedule.
const (
	minuteField = iota
	hourField
	dayField
	monthField
	weekdayField
)

var cronFields = [...]struct {
	name        string
	first, last int
	words       []string // the names of the values, from first
}{
	minuteField:  {"minute", 0, 59, nil},
	hourField:    {"hour", 0, 23, nil},
	dayField:     {"day of the month", 1, 31, nil},
	monthField:   {"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	weekdayField: {"weekday", 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

var cronWords = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

const (
	secondsOfDay = 24 * 60 * 60
	// cronHorizon is how far Next looks, in seconds. 29 February falls on a given weekday at least once in 40 years.
	cronHorizon = 41 * 366 * secondsOfDay
	// lastCronTime is the end of the year 9999, in Unix seconds.
	lastCronTime = 253402300799
	// zoneReach is more than any zone's offset from UTC, in seconds.
	zoneReach = 26 * 60 * 60
	// maxSchedule bounds the text of a schedule. Lists of all values are shorter.
	maxSchedule = 1024
)

// ParseSchedule reads five fields as crontab(5) has them, a word such as @daily, or @every with a time. It refuses a
// schedule that never runs.
func ParseSchedule(text string) (s Schedule, err error) {
	if len(text) > maxSchedule {
		return s, fmt.Errorf("a schedule has at most %d bytes", maxSchedule)
	}
	fields := strings.Fields(text)
	if len(fields) == 2 && fields[0] == "@every" {
		ms, err := parseTime(fields[1])
		if err != nil {
			return s, err
		}
		if ms%1000 != 0 {
			return s, fmt.Errorf("@every %s is not a number of whole seconds", fields[1])
		}
		return Schedule{every: ms / 1000}, nil
	}
	if len(fields) == 1 && cronWords[fields[0]] != "" {
		fields = strings.Fields(cronWords[fields[0]])
	}
	if len(fields) != len(cronFields) {
		return s, fmt.Errorf("%q is no schedule: it has five fields, minute hour day month weekday, as in '30 2 * * *', or is @hourly, @daily, @weekly, @monthly, @yearly or @every 10m", text)
	}
	for i, f := range fields {
		if s.fields[i], err = parseCronField(i, f); err != nil {
			return Schedule{}, fmt.Errorf("the %s %q %w", cronFields[i].name, f, err)
		}
	}
	if s.fields[weekdayField]&(1<<7) != 0 { // 7 is Sunday, too
		s.fields[weekdayField] |= 1
	}
	s.wild = fields[minuteField][0] == '*' || fields[hourField][0] == '*'
	s.matchBoth = fields[dayField][0] == '*' || fields[weekdayField][0] == '*'
	if _, ok := s.match(0, cronHorizon); !ok {
		return Schedule{}, fmt.Errorf("%q never runs: no month that it names has such a day", text)
	}
	return s, nil
}

// parseCronField returns the values of a field of a schedule as a set of bits. The text is a list, separated by commas,
// of *, values and ranges with an optional step, such as 1-5 or */10. The weekdays 0 and 7 are both Sunday.
func parseCronField(field int, text string) (set uint64, err error) {
	f := &cronFields[field]
	for _, item := range strings.Split(text, ",") {
		values, stepText, stepped := strings.Cut(item, "/")
		low, high, ranged := strings.Cut(values, "-")
		first, last, step := f.first, f.last, 1
		if field == weekdayField && stepped && values == "*" {
			last = 6 // Sunday counts once
		}
		if values != "*" {
			if first, err = cronValue(field, low); err != nil {
				return 0, err
			}
			last = first
			if ranged {
				if last, err = cronValue(field, high); err != nil {
					return 0, err
				}
				if field == weekdayField && last == 0 && first > 0 {
					last = 7 // as in fri-sun
				}
			} else if stepped {
				return 0, fmt.Errorf("has a step without a range: write %s-%d/%s", low, f.last, stepText)
			}
		}
		if last < first {
			return 0, errors.New("ends before it begins: write it as two ranges with a comma")
		}
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return 0, fmt.Errorf("has a step that is no number from 1 to %d", f.last)
			}
			if step > f.last {
				return 0, fmt.Errorf("has a step beyond its values, which end at %d; @every 90m counts across hours", f.last)
			}
		}
		for v := first; v <= last; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

// cronValue reads one value of a field, by its number or its name.
func cronValue(field int, text string) (int, error) {
	f := &cronFields[field]
	for i, word := range f.words {
		if strings.EqualFold(word, text) {
			return f.first + i, nil
		}
	}
	if n, err := strconv.ParseUint(text, 10, 8); err == nil && f.first <= int(n) && int(n) <= f.last {
		return int(n), nil
	}
	if f.words != nil {
		return 0, fmt.Errorf("is none: it has numbers from %d to %d or names from %s to %s", f.first, f.last, f.words[0], f.words[len(f.words)-1])
	}
	return 0, fmt.Errorf("is none: it has numbers from %d to %d, lists as 1,15, ranges as 1-5, steps as */5, or *", f.first, f.last)
}

// Next returns the first time after t at which the schedule runs in a time zone. ok is false if the schedule never runs
// again.
//
// A local time that a change of the clock skips runs at the first instant after the gap. A local time that comes twice
// runs once, when it comes first. A schedule whose minute or hour begins with * runs whenever the local clock shows one
// of its times: twice, or not at all.
func (s *Schedule) Next(t time.Time, zone *time.Location) (next time.Time, ok bool) {
	now := t.Unix()
	if now >= lastCronTime || now < -lastCronTime {
		return time.Time{}, false
	}
	if s.every > 0 {
		at := now - now%s.every
		if at <= now {
			at += s.every
		}
		return time.Unix(at, 0).In(zone), true
	}
	find := s.nextFixed
	if s.wild {
		find = s.nextWild
	}
	at, ok := find(now, zone)
	if !ok || at > lastCronTime {
		return time.Time{}, false
	}
	return time.Unix(at, 0).In(zone), true
}

// nextFixed returns the first instant after now at which the local clock shows a matching time for the first time, or
// has just skipped one.
func (s *Schedule) nextFixed(now int64, zone *time.Location) (int64, bool) {
	offset, _ := zoneAt(now, zone)
	for from := now + 1 + offset; ; {
		local, ok := s.match(from, now+cronHorizon)
		if !ok {
			return 0, false
		}
		if at := reached(local, zone); at > now {
			return at, true
		}
		from = local + 60
	}
}

// nextWild returns the first instant after now at which the local clock shows a matching time.
func (s *Schedule) nextWild(now int64, zone *time.Location) (int64, bool) {
	for from := now + 1; ; {
		offset, end := zoneAt(from, zone)
		local, ok := s.match(from+offset, now+cronHorizon)
		if !ok {
			return 0, false
		}
		if at := local - offset; at < end {
			return at, true
		}
		from = end
	}
}

// reached returns the first instant at which the local clock shows a time or a later one.
func reached(local int64, zone *time.Location) int64 {
	for from := local - zoneReach; ; {
		offset, end := zoneAt(from, zone)
		if at := max(local-offset, from); at < end {
			return at
		}
		from = end
	}
}

// zoneAt returns the offset of a zone from UTC at an instant, in seconds, and when it next changes.
func zoneAt(at int64, zone *time.Location) (offset, end int64) {
	t := time.Unix(at, 0).In(zone)
	_, seconds := t.Zone()
	if _, last := t.ZoneBounds(); !last.IsZero() {
		return int64(seconds), last.Unix()
	}
	return int64(seconds), lastCronTime + cronHorizon
}

// match returns the first matching minute from a local time up to an end. Local times are counted in seconds as if they
// were UTC's.
func (s *Schedule) match(local, end int64) (int64, bool) {
	minutes := floorDiv(local+59, 60)
	day, minute := floorDiv(minutes, 24*60), int(minutes-floorDiv(minutes, 24*60)*24*60)
	for ; day*secondsOfDay < end; minute = 0 {
		date := time.Unix(day*secondsOfDay, 0).UTC()
		if !s.has(monthField, int(date.Month())) {
			day = time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC).Unix() / secondsOfDay
			continue
		}
		if s.hasDay(date) {
			if m, ok := s.inDay(minute); ok {
				return day*secondsOfDay + int64(m)*60, true
			}
		}
		day++
	}
	return 0, false
}

func (s *Schedule) has(field, value int) bool { return s.fields[field]>>value&1 != 0 }

func (s *Schedule) hasDay(date time.Time) bool {
	day, weekday := s.has(dayField, date.Day()), s.has(weekdayField, int(date.Weekday()))
	if s.matchBoth {
		return day && weekday
	}
	return day || weekday
}

// inDay returns the first matching minute of a matching day from a given minute on. Minutes count from midnight.
func (s *Schedule) inDay(from int) (minute int, ok bool) {
	for hour := from / 60; hour < 24; hour++ {
		if !s.has(hourField, hour) {
			continue
		}
		if left := s.fields[minuteField] >> max(from-hour*60, 0); left != 0 {
			return hour*60 + max(from-hour*60, 0) + bits.TrailingZeros64(left), true
		}
	}
	return 0, false
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
