package interop

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	cron "github.com/netresearch/go-cron"

	"treadle/sched"
)

// TestScheduleAgainstLibrary compares the times of random schedules with those of a library of others. In UTC, and in a
// zone away from its changes of the offset: there the library runs a fixed time of autumn twice. Steps as */2 are not
// for days: with them crontab(5) joins the fields for days by AND, the library by OR.
func TestScheduleAgainstLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	compared := 0
	for range 20_000 {
		text := randomSchedule(rng)
		ours, err := sched.ParseSchedule(text)
		if err != nil {
			continue // it never runs
		}
		theirs, err := parser.Parse(text)
		if err != nil {
			continue // the library refuses a step beyond its range
		}
		zone := []*time.Location{time.UTC, berlin}[rng.IntN(2)]
		at := time.Unix(1_700_000_000+rng.Int64N(300_000_000), 0).In(zone)
		for range 5 {
			got, ok := ours.Next(at, zone)
			want := theirs.Next(at)
			if !ok || want.IsZero() {
				if ok && got.Sub(at) < 4*365*24*time.Hour { // the library looks some years ahead
					t.Errorf("%q after %v: got %v, want none", text, at, got)
				}
				break
			}
			if !sameOffset(at, got) {
				break
			}
			if !got.Equal(want) {
				t.Errorf("%q after %v: got %v, want %v", text, at, got, want)
				break
			}
			at = got
			compared++
		}
	}
	if compared < 10_000 {
		t.Errorf("%d times were compared", compared)
	}
}

// sameOffset reports whether a zone's offset is the same at two times and does not change shortly before or after.
func sameOffset(from, to time.Time) bool {
	_, end := from.Add(-48 * time.Hour).ZoneBounds()
	return from.Location() == time.UTC || to.Add(48*time.Hour).Before(end)
}

func randomSchedule(rng *rand.Rand) string {
	field := func(first, last int) string {
		value := func() int { return first + rng.IntN(last-first+1) }
		switch low, high := value(), value(); rng.IntN(6) {
		case 0:
			return fmt.Sprint(low)
		case 1:
			if last == 31 || last == 6 {
				return "*"
			}
			return fmt.Sprintf("*/%d", 1+rng.IntN(last))
		case 2:
			return fmt.Sprintf("%d-%d", min(low, high), max(low, high))
		case 3:
			return fmt.Sprintf("%d-%d/%d", min(low, high), max(low, high), 1+rng.IntN(last))
		case 4:
			return fmt.Sprintf("%d,%d", low, high)
		}
		return "*"
	}
	return fmt.Sprintf("%s %s %s %s %s", field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6))
}
