package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
	_ "time/tzdata" // the program knows the zones on a machine that does not

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// cronPrefix is in front of the name in the journal's key of a run-time entry. The value is the entry as JSON, null
// when it was removed.
const cronPrefix = "cron."

// cronEntry is an entry as it was configured and as the scheduler has it.
type cronEntry struct {
	codec.CronEntry
	sched  sched.CronEntry
	source sched.PolicySource
}

// CheckCron returns an error for an invalid entry, with the key of the configuration file that is wrong.
func CheckCron(e *codec.CronEntry) (key string, err error) {
	_, err = newCron(e, sched.FromFile, 0)
	var wrong *sched.CronError
	if errors.As(err, &wrong) {
		return wrong.Field, err
	}
	return "", err
}

// newCron returns an entry with the defaults of the missing fields, or a CronError.
func newCron(e *codec.CronEntry, source sched.PolicySource, space sched.Space) (*cronEntry, error) {
	c := &cronEntry{CronEntry: *e, source: source}
	c.sched = sched.CronEntry{
		Name: e.Name, Queue: string(protocol.Queue([]byte(e.Queue))), Space: space,
		Workload: []byte(e.Workload), Priority: e.Priority, Schedule: e.Schedule,
	}
	if len(e.WorkloadBytes) > 0 {
		c.sched.Workload = e.WorkloadBytes
	}
	c.Zone = cmp.Or(e.Zone, "Local")
	c.Missed, c.Overlap = cmp.Or(e.Missed, "once"), cmp.Or(e.Overlap, "skip")
	var err error
	if c.sched.Zone, err = time.LoadLocation(c.Zone); err != nil {
		return nil, &sched.CronError{Field: "zone", Err: fmt.Errorf("%q is no time zone: write a name as Europe/Berlin, or UTC, or Local for the server's", c.Zone)}
	}
	if c.sched.SkipMissed = c.Missed == "skip"; !c.sched.SkipMissed && c.Missed != "once" {
		return nil, &sched.CronError{Field: "missed", Err: errors.New("it is once or skip")}
	}
	if c.sched.Overlap = c.Overlap == "queue"; !c.sched.Overlap && c.Overlap != "skip" {
		return nil, &sched.CronError{Field: "overlap", Err: errors.New("it is skip or queue")}
	}
	return c, c.sched.Check()
}

// mergedCron returns the entries of the file and of the run time. An entry of the run time replaces the entry of the
// file with the same name.
func (api *API) mergedCron() (map[string]*cronEntry, error) {
	all := make(map[string]*cronEntry)
	for k := range api.o.Cron {
		c, err := newCron(&api.o.Cron[k], sched.FromFile, api.o.JobSpace)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the cron entry %q: %w", api.o.Cron[k].Name, err)
		case all[c.Name] != nil:
			return nil, fmt.Errorf("there are two cron entries %q", c.Name)
		}
		all[c.Name] = c
	}
	maps.Copy(all, api.runTimeCron)
	return all, nil
}

// restoreCron restores an entry that was set at run time, or its removal, from a setting of the journal.
func (api *API) restoreCron(name string, value []byte) error {
	var e *codec.CronEntry
	if err := json.Unmarshal(value, &e); err != nil {
		return fmt.Errorf("the cron entry %q in the journal: %w", name, err)
	}
	if e == nil { // it was removed
		delete(api.runTimeCron, name)
		return nil
	}
	c, err := newCron(e, sched.FromRunTime, api.o.JobSpace)
	if err != nil { // a zone may have other names where the directory comes from
		api.host.Log().Warn("a cron entry of the journal is ignored", "entry", name, "error", err)
		return nil
	}
	api.runTimeCron[name] = c
	return nil
}

// beginCron sets the entries of the file and of the run time in the scheduler, and drops those of an earlier start.
func (api *API) beginCron() (err error) {
	if api.cron, err = api.mergedCron(); err != nil {
		return err
	}
	for _, c := range api.cron {
		if err := api.host.Sched().SetCron(api.host.Now(), &c.sched); err != nil {
			return fmt.Errorf("the cron entry %q: %w", c.Name, err)
		}
	}
	api.host.Sched().DropOldCron()
	return nil
}

// addCron adds or replaces an entry of the run time. The journal has it after a commit.
func (api *API) addCron(a *codec.CronAdd) error {
	c, err := newCron(&a.CronEntry, sched.FromRunTime, api.o.JobSpace)
	if err != nil {
		return &badRequest{err}
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	before := api.cron[c.Name]
	if before != nil && !a.Replace {
		return &badRequest{fmt.Errorf("there is a cron entry %q already (%s): replace it, as with --replace, or choose another name", c.Name, before.source)}
	}
	text, err := json.Marshal(&c.CronEntry)
	if err != nil {
		return err
	}
	if err := api.putCron(before, c); err != nil {
		return err
	}
	api.runTimeCron[c.Name] = c
	api.host.PutSetting(cronPrefix+c.Name, text)
	api.host.Log().Info("a cron entry is set", "entry", c.Name, "schedule", c.Schedule, "zone", c.Zone, "queue", c.Queue)
	return nil
}

// putCron puts an entry in the place of another one, whose counts and pause it keeps. Either may be nil.
func (api *API) putCron(before, after *cronEntry) (err error) {
	switch {
	case after == nil:
		delete(api.cron, before.Name)
		return api.host.Sched().RemoveCron(before.sched.Queue, before.Name)
	case before != nil && before.sched.Queue != after.sched.Queue:
		err = api.host.Sched().MoveCron(api.host.Now(), before.sched.Queue, &after.sched)
	default:
		err = api.host.Sched().SetCron(api.host.Now(), &after.sched)
	}
	if err != nil {
		return &badRequest{err}
	}
	api.cron[after.Name] = after
	return nil
}

// removeCron removes an entry of the run time. One of the file with its name comes in its place.
func (api *API) removeCron(c *cronEntry, _ *codec.CronChange) (any, error) {
	if c.source == sched.FromFile {
		return nil, &badRequest{fmt.Errorf("the configuration file has the cron entry %q: take it out there, or pause it", c.Name)}
	}
	delete(api.runTimeCron, c.Name)
	all, err := api.mergedCron()
	if err == nil {
		err = api.putCron(c, all[c.Name])
	}
	if err != nil {
		return nil, err
	}
	api.host.PutSetting(cronPrefix+c.Name, []byte("null"))
	api.host.Log().Info("a cron entry is removed", "entry", c.Name)
	return struct{}{}, nil
}

func (api *API) runCron(c *cronEntry, _ *codec.CronChange) (any, error) {
	sink := api.host.NewSink()
	run, err := api.host.Sched().RunCron(api.host.Now(), c.sched.Queue, c.Name, sink)
	sink.Wake()
	return &codec.CronRun{Outcome: run.Outcome.String(), Text: run.Text}, err
}

func (api *API) pauseCron(c *cronEntry, p *codec.CronChange) (any, error) {
	if err := api.host.Sched().PauseCron(c.sched.Queue, c.Name, p.By, p.Why); err != nil {
		return nil, &badRequest{err}
	}
	api.host.Log().Info("a cron entry is paused", "entry", c.Name, "by", p.By, "why", p.Why)
	return struct{}{}, nil
}

func (api *API) resumeCron(c *cronEntry, p *codec.CronChange) (any, error) {
	api.host.Log().Info("a cron entry is resumed", "entry", c.Name)
	return struct{}{}, api.host.Sched().ResumeCron(api.host.Now(), c.sched.Queue, c.Name)
}

// cronStatuses returns the entries by name, the given number of times to come of each; only the one of a name if it is
// not empty.
func (api *API) cronStatuses(only string, times int) []codec.CronStatus {
	var states []sched.CronStatus
	api.host.Sched().WalkCron(func(s *sched.CronStatus) {
		if only == "" || s.Name == only {
			states = append(states, *s)
		}
	})
	slices.SortFunc(states, func(a, b sched.CronStatus) int { return cmp.Compare(a.Name, b.Name) })
	api.mu.Lock()
	defer api.mu.Unlock()
	all := []codec.CronStatus{}
	for k := range states {
		s := &states[k]
		c := api.cron[s.Name]
		if c == nil || c.sched.Queue != s.Queue {
			continue // it was removed meanwhile
		}
		status := codec.CronStatus{
			CronEntry: c.CronEntry, Source: c.source.String(), Next: nextTimes(s, times),
			Paused: s.Paused, By: s.By, Why: s.Why,
			Last: s.Last.Outcome.String(), LastAt: s.Last.At, Text: s.Last.Text, Counts: make(map[string]uint64),
		}
		for _, o := range sched.CronOutcomes() {
			if n := s.Counts[o]; n > 0 {
				status.Counts[o.String()] = n
			}
		}
		all = append(all, status)
	}
	return all
}

func nextTimes(s *sched.CronStatus, n int) []string {
	times := []string{}
	schedule, err := sched.ParseSchedule(s.Schedule)
	if err != nil || s.Next == 0 {
		return times
	}
	for next, ok := time.UnixMilli(s.Next).In(s.Zone), true; ok && len(times) < n; next, ok = schedule.Next(next, s.Zone) {
		times = append(times, next.Format(time.RFC3339))
	}
	return times
}

// Samples implements protocol.Protocol.
func (api *API) Samples() (all []web.Sample) {
	api.host.Sched().WalkCron(func(s *sched.CronStatus) {
		for _, o := range sched.CronOutcomes() {
			if n := s.Counts[o]; n > 0 {
				all = append(all, web.Counter("treadle_cron_runs_total", "Times of cron entries, and runs by hand, by their outcome.",
					n).With("entry", s.Name).With("outcome", o.String()))
			}
		}
	})
	return all
}

// maxCronTimes bounds the times to come in an answer.
const maxCronTimes = 1000

// getCron answers GET /cron with all entries, or with one and its next times.
func (api *API) getCron(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	times := 1
	if text := q.Get("next"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxCronTimes || q.Get("entry") == "" {
			return nil, &badRequest{errors.New("next is a number from 1 to " + strconv.Itoa(maxCronTimes) + ", of one entry")}
		}
		times = n
	}
	answer := &codec.CronEntries{Entries: api.cronStatuses(q.Get("entry"), times)}
	if name := q.Get("entry"); name != "" && len(answer.Entries) == 0 {
		return nil, noCron(name)
	}
	return answer, nil
}

func noCron(name string) error { return &notFound{fmt.Errorf("there is no cron entry %q", name)} }

// postCron answers POST /cron: it sets an entry at run time.
func (api *API) postCron(r *http.Request) (any, error) {
	var a codec.CronAdd
	if err := decodeBody(r, &a); err != nil {
		return nil, err
	}
	if err := api.addCron(&a); err != nil {
		return nil, err
	}
	if err := api.commit(); err != nil {
		return nil, err
	}
	return &codec.CronEntries{Entries: api.cronStatuses(a.Name, 1)}, nil
}

// cronVerb applies verb to the entry that a request names, and answers when the journal has the change.
func (api *API) cronVerb(verb func(*API, *cronEntry, *codec.CronChange) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var p codec.CronChange
		if err := decodeBody(r, &p); err != nil {
			return nil, err
		}
		who := api.auditorOf(r, p.By)
		p.By = who.name()
		answer, err := api.changeCron(verb, &p)
		if err != nil {
			return nil, err
		}
		return answer, api.commit()
	}
}

func (api *API) changeCron(verb func(*API, *cronEntry, *codec.CronChange) (any, error), p *codec.CronChange) (any, error) {
	api.mu.Lock()
	defer api.mu.Unlock()
	c := api.cron[p.Entry]
	if c == nil {
		return nil, noCron(p.Entry)
	}
	return verb(api, c, p)
}
