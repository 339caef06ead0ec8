package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// randomCommands is how many commands a random sequence has.
const randomCommands = 80

// TestFaktoryRandom sends the same random commands to the original Faktory and to Treadle. Their replies must be the
// same bytes, but for times and the texts of errors. A model of the jobs chooses commands that mean something: it knows
// which queues have jobs, so that few a FETCH waits.
func TestFaktoryRandom(t *testing.T) {
	theirs := startOriginal(t, original(t))
	_, ours := faktoryServer(t, "tcp://127.0.0.1:0", "none")
	first := *faktorySeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	compared, cut := make(map[string]int), 0
	for i := range uint64(*faktorySequences) {
		d := &duel{t: t, seed: first + i, rng: rand.New(rand.NewPCG(first+i, 7)), compared: compared}
		for n, address := range [2]string{theirs, ours} {
			d.conns[n] = dialFaktory(t, address)
			d.conns[n].ask(t, "HELLO "+fmt.Sprintf(`{"v":2,"wid":"w%d"}`, i)) // the greeting
			d.conns[n].reply(t, patience)
		}
		if !d.play() {
			cut++
		}
		for n := range d.conns {
			_ = d.conns[n].Close()
		}
	}
	total := 0
	for _, n := range compared {
		total += n
	}
	t.Logf("%d commands in %d sequences from seed %d, %d of them cut short by time: %v", total, *faktorySequences, first, cut, compared)
}

// duel is one sequence. The first connection is the original's.
type duel struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	conns    [2]*faktoryConn
	compared map[string]int // commands by their words
	log      []string
	jobs     []*duelJob
	paused   map[string]bool
	exists   map[string]bool // queues that had a job since they were removed
	totals   [2][2]float64   // of INFO at the last FLUSH
	waited   bool            // a FETCH has waited for two seconds
}

// duelJob is the model of a job.
type duelJob struct {
	jid, queue, jobtype string
	retry, failures     int
	in                  string // ready, scheduled, retries, dead, reserved or gone
	was                 string // the set from which it was requeued
}

var duelQueues = []string{"default", "a", "b-1"}

// pick returns one of some values.
func pick[T any](d *duel, of ...T) T { return of[d.rng.IntN(len(of))] }

// in returns the jobs of a set.
func (d *duel) in(set string) (all []*duelJob) {
	for _, j := range d.jobs {
		if j.in == set {
			all = append(all, j)
		}
	}
	return all
}

// ready returns the queues that a FETCH finds a job in.
func (d *duel) ready() (queues []string) {
	for _, q := range duelQueues {
		if !d.paused[q] && slices.ContainsFunc(d.in("ready"), func(j *duelJob) bool { return j.queue == q }) {
			queues = append(queues, q)
		}
	}
	return queues
}

// play plays a sequence. It returns false when that took so long that jobs may be due again.
func (d *duel) play() bool {
	d.paused, d.exists = make(map[string]bool), make(map[string]bool)
	d.flush()
	began := time.Now()
	for range randomCommands {
		if time.Since(began) > 10*time.Second { // the first retry is due after 15
			return false
		}
		switch n := d.rng.IntN(100); {
		case n < 28:
			d.push()
		case n < 34:
			d.pushBulk()
		case n < 54:
			d.fetch()
		case n < 64:
			d.ack()
		case n < 76:
			d.fail()
		case n < 88:
			d.mutate()
		case n < 94:
			d.queue()
		case n < 97:
			d.info()
		default:
			d.odd()
		}
	}
	d.info()
	return true
}

// both sends a command to both servers, compares the replies and returns them as they are compared.
func (d *duel) both(command string, hide ...func(string) string) string {
	d.t.Helper()
	word, _, _ := strings.Cut(command, " ")
	d.compared[word]++
	var got, raw [2]string
	for n, c := range d.conns {
		raw[n] = c.ask(d.t, command)
		got[n] = hideFaktory(raw[n])
		for _, h := range hide {
			got[n] = h(got[n])
		}
	}
	d.log = append(d.log, command+"\n\t"+got[0])
	// Faktory requeues a scheduled job without the time that it reads for LATENCY.
	if word == "QUEUE" && strings.HasPrefix(raw[0], `-ERR QUEUE: parsing time ""`) && strings.HasPrefix(raw[1], "$") {
		return got[1]
	}
	if got[0] != got[1] {
		d.t.Fatalf("seed %d, after\n%s\nTreadle gives\n\t%s\nThe replies were\n\t%s\n\t%s", d.seed, strings.Join(d.log, "\n"), got[1], raw[0], raw[1])
	}
	return got[0]
}

// flush removes all jobs. What is reserved is forgotten: Faktory still knows that.
func (d *duel) flush() {
	d.both("QUEUE RESUME *")
	d.both("FLUSH")
	d.jobs, d.exists = nil, make(map[string]bool)
	clear(d.paused)
	for n := range d.conns {
		d.totals[n] = d.counts(n)
	}
}

// job returns the JSON of a job, which may be none. good says that it is one.
func (d *duel) job() (text string, j *duelJob, good bool) {
	j = &duelJob{jid: fmt.Sprintf("jid-%d-%d", d.seed%1000, d.rng.Uint32()), queue: pick(d, duelQueues...), jobtype: pick(d, "T", "Mail", "a.b:C"), in: "ready"}
	fields := []string{fmt.Sprintf(`"jid":%q`, j.jid), fmt.Sprintf(`"jobtype":%q`, j.jobtype), `"args":` + pick(d, `[]`, `[1,"two",null]`, `[{"a":[true,{}]}]`, `[[],[[-7]]]`)}
	if j.queue != "default" || d.rng.IntN(2) == 0 {
		fields = append(fields, fmt.Sprintf(`"queue":%q`, j.queue))
	}
	// Each job has a retry: Faktory gives a job without one the retry of the job that was pushed before it.
	j.retry = pick(d, 0, -1, 1, 2, 3, 25, -4)
	fields = append(fields, fmt.Sprintf(`"retry":%d`, j.retry))
	switch d.rng.IntN(6) {
	case 0:
		j.in = "scheduled"
		fields = append(fields, fmt.Sprintf(`"at":"2%d99-01-02T03:04:%02dZ"`, d.rng.IntN(8)+1, d.rng.IntN(60)))
	case 1:
		fields = append(fields, `"at":"2001-01-02T03:04:05.678Z"`)
	}
	for _, f := range []string{
		`"custom":{"a":"b","track":0,"z":[1]}`, `"custom":{}`, `"reserve_for":` + pick(d, "0", "5", "600", "86400"), `"backtrace":` + pick(d, "0", "20"), `"created_at":"2020-02-02T02:02:02Z"`,
		`"enqueued_at":""`, `"custom":null`, `"failure":null`,
	} {
		name, _, _ := strings.Cut(f, ":")
		if d.rng.IntN(8) == 0 && !slices.ContainsFunc(fields, func(g string) bool { return strings.HasPrefix(g, name) }) {
			fields = append(fields, f)
		}
	}
	good = true
	if d.rng.IntN(7) == 0 {
		good = false
		switch d.rng.IntN(8) {
		case 0:
			fields = fields[1:]
		case 1:
			fields = fields[:2]
		case 2:
			fields[0] = `"jid":"short"`
		default:
			fields = append(fields, pick(d, `"args":{}`, `"retry":"3"`, `"at":"noon"`, `"reserve_for":86401`, `"custom":3`, `"jobtype":""`, `"queue":7`, `x`, `"args":null`))
		}
	}
	d.rng.Shuffle(len(fields), func(a, b int) {
		if good {
			fields[a], fields[b] = fields[b], fields[a]
		}
	})
	return "{" + strings.Join(fields, ",") + "}", j, good
}

func (d *duel) add(j *duelJob) {
	d.jobs = append(d.jobs, j)
	if j.in == "ready" {
		d.exists[j.queue] = true
	}
}

func (d *duel) push() {
	text, j, good := d.job()
	if got := d.both("PUSH " + text); good != (got == "+OK") {
		d.t.Fatalf("seed %d: %s gives %s", d.seed, text, got)
	}
	if good {
		d.add(j)
	}
}

// pushBulk pushes jobs of valid types: Faktory refuses the whole array otherwise.
func (d *duel) pushBulk() {
	var all []string
	bad := ""
	for range d.rng.IntN(4) {
		text, j, good := d.job()
		if good {
			d.add(j)
			all = append(all, text)
		}
	}
	if d.rng.IntN(4) == 0 {
		bad = `{"jid":"none","jobtype":"T","args":[]}`
		all = append(all, bad)
	}
	if d.rng.IntN(9) == 0 {
		d.both("PUSHB " + pick(d, `{}`, `[1,`, `7`, `"x"`))
	}
	d.both("PUSHB ["+strings.Join(all, ",")+"]", func(reply string) string { // the texts of errors
		return regexp.MustCompile(`"none":"[^"]*"`).ReplaceAllString(reply, `"none":"<text>"`)
	})
}

func (d *duel) fetch() {
	queues := d.ready()
	if len(queues) == 0 {
		if d.waited || d.rng.IntN(4) > 0 {
			return
		}
		d.waited = true
		if got := d.both("FETCH " + strings.Join(duelQueues, " ")); got != "$-1" {
			d.t.Fatalf("seed %d: fetched %s from empty queues", d.seed, got)
		}
		return
	}
	order := slices.Clone(duelQueues)
	d.rng.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
	d.take(d.both("FETCH "+strings.Join(order, " "), d.forgiving))
}

// take has the model follow a FETCH.
func (d *duel) take(reply string) {
	var got struct{ JID string }
	if json.Unmarshal([]byte(strings.TrimPrefix(reply, "$ ")), &got) != nil {
		d.t.Fatalf("seed %d: fetched %s", d.seed, reply)
	}
	for _, j := range d.in("ready") {
		if j.jid == got.JID {
			j.in = "reserved"
			return
		}
	}
	d.t.Fatalf("seed %d: fetched %s, which is not ready", d.seed, reply)
}

// forgiving hides what Treadle does on purpose, see the page of the protocol: the time at which a requeued job was
// enqueued, and the retries of one that was dead.
func (d *duel) forgiving(reply string) string {
	for _, j := range d.jobs {
		if j.was == "" || !strings.Contains(reply, `"jid":"`+j.jid+`"`) {
			continue
		}
		reply = regexp.MustCompile(`"enqueued_at":"[^"]*",`).ReplaceAllString(reply, "")
		if j.was == "dead" {
			reply = regexp.MustCompile(`"retry_count":[0-9]+,"remaining":-?[0-9]+`).ReplaceAllString(reply, `"retry_count":"dead"`)
			reply = regexp.MustCompile(`"next_at":"[^"]*",`).ReplaceAllString(reply, "")
		}
	}
	return reply
}

func (d *duel) ack() {
	reserved := d.in("reserved")
	if len(reserved) == 0 || d.rng.IntN(8) == 0 {
		d.both("ACK " + pick(d, `{"jid":"unknown-1"}`, `{"jid":7}`, `{}`, `[]`, `x`, `{"jid":"unknown-2","x":"y"}`))
		return
	}
	j := pick(d, reserved...)
	d.both(fmt.Sprintf(`ACK {"jid":%q}`, j.jid))
	j.in = "gone"
}

func (d *duel) fail() {
	var reserved []*duelJob
	for _, j := range d.in("reserved") {
		if j.was != "dead" { // Treadle gives it all its retries, and Faktory none
			reserved = append(reserved, j)
		}
	}
	if len(reserved) == 0 || d.rng.IntN(8) == 0 {
		d.both("FAIL " + pick(d, `{"jid":"unknown-1"}`, `{"jid":""}`, `{}`, `[]`, `x`, `{"jid":"unknown-2","backtrace":"x"}`))
		return
	}
	j := pick(d, reserved...)
	d.both(fmt.Sprintf(`FAIL {"jid":%q%s}`, j.jid, pick(d, ``, `,"errtype":"Net::Error","message":"no route"`, `,"message":" a: b\nc "`, `,"errtype":"","message":"","backtrace":[]`, `,"errtype":"a: b","backtrace":["x:1","y:2"]`)))
	j.failures++
	switch {
	case j.retry == 0:
		j.in = "gone"
	case j.failures-1 < j.retry:
		j.in = "retries"
	default:
		j.in = "dead"
	}
}

// mutate changes one job, or all jobs of a set.
func (d *duel) mutate() {
	target := pick(d, "scheduled", "retries", "dead")
	verb := pick(d, "requeue", "requeue", "kill", "discard", "clear")
	all := d.in(target)
	if d.rng.IntN(10) == 0 {
		d.both("MUTATE " + pick(d, `{"cmd":"eat","target":"dead"}`, `{"cmd":"kill","target":"working"}`, `{"cmd":"clear"}`, `x`, `[]`))
	}
	filter := ""
	switch n := d.rng.IntN(5); {
	case verb == "clear":
	case len(all) > 0 && n < 3:
		j := pick(d, all...)
		filter = pick(d, fmt.Sprintf(`{"jids":[%q,"other-jid"]}`, j.jid), fmt.Sprintf(`{"regexp":"*\"jid\":\"%s\"*"}`, j.jid))
		all = []*duelJob{j}
	case n == 3:
		filter = `{"jobtype":"Mail"}`
		all = slices.DeleteFunc(all, func(j *duelJob) bool { return j.jobtype != "Mail" })
	}
	command := fmt.Sprintf(`MUTATE {"cmd":%q,"target":%q`, verb, target)
	if filter != "" {
		command += `,"filter":` + filter
	}
	d.both(command + "}")
	for _, j := range all {
		switch verb {
		case "requeue":
			j.in, j.was = "ready", target
			d.exists[j.queue] = true
		case "kill":
			j.in = "dead"
		default:
			j.in = "gone"
		}
	}
	if verb == "requeue" && len(all) > 1 {
		d.drain()
	}
}

// drain fetches all jobs that are ready, in any order within a queue: Faktory requeues several jobs in the order of a
// hash table.
func (d *duel) drain() {
	for _, q := range d.ready() {
		var got [2][]string
		n := 0
		for _, j := range d.in("ready") {
			if j.queue == q {
				n++
				j.in = "gone"
			}
		}
		for i, c := range d.conns {
			for range n {
				reply := c.ask(d.t, "FETCH "+q)
				var job struct{ JID string }
				_ = json.Unmarshal([]byte(strings.TrimPrefix(reply, "$ ")), &job) // it is compared below
				got[i] = append(got[i], d.forgiving(hideFaktory(reply)))
				c.ask(d.t, fmt.Sprintf(`ACK {"jid":%q}`, job.JID))
			}
			slices.Sort(got[i])
		}
		d.compared["FETCH"] += n
		d.compared["ACK"] += n
		d.log = append(d.log, fmt.Sprintf("all %d jobs of %s", n, q))
		if !slices.Equal(got[0], got[1]) {
			d.t.Fatalf("seed %d, after\n%s\n\t%s\nTreadle gives\n\t%s", d.seed, strings.Join(d.log, "\n"), strings.Join(got[0], "\n\t"), strings.Join(got[1], "\n\t"))
		}
	}
}

func (d *duel) queue() {
	q := pick(d, duelQueues...)
	switch d.rng.IntN(6) {
	case 0, 1:
		if d.exists[q] { // Faktory pauses no queue that has never had a job
			d.both("QUEUE PAUSE " + q)
			d.paused[q] = true
		}
	case 2:
		d.both("QUEUE " + pick(d, "RESUME ", "resume ") + "*")
		clear(d.paused)
	case 3:
		d.both("QUEUE REMOVE " + q)
		for _, j := range d.in("ready") {
			if j.queue == q {
				j.in = "gone"
			}
		}
		delete(d.paused, q)
		delete(d.exists, q)
	case 4:
		d.both("QUEUE LATENCY "+q+" none", func(reply string) string { // how long a job has waited
			return regexp.MustCompile(`:[0-9.e-]+`).ReplaceAllString(reply, ":<time>")
		})
	case 5:
		d.both("QUEUE " + pick(d, "EAT x", "LATENCY *"))
	}
}

// odd sends what is no command, and those of the connection.
func (d *duel) odd() {
	d.both(pick(d, "NOPE", "push {}", "BATCH NEW {}", "", "FETCH", "PUSH", `BEAT {"wid":"nobody"}`, "BEAT x", fmt.Sprintf(`BEAT {"wid":"w%d","rss_kb":1}`, 0), "ACK", "FAIL", "MUTATE", "QUEUE"))
}

// counts returns the totals of INFO: failures and all.
func (d *duel) counts(n int) (totals [2]float64) {
	var info struct {
		Faktory struct {
			Failures  float64 `json:"total_failures"`
			Processed float64 `json:"total_processed"`
		}
	}
	reply := d.conns[n].ask(d.t, "INFO")
	if err := json.Unmarshal([]byte(strings.TrimPrefix(reply, "$ ")), &info); err != nil {
		d.t.Fatalf("INFO gives %s", reply)
	}
	return [2]float64{info.Faktory.Failures, info.Faktory.Processed}
}

// info compares the counts of INFO, and those of the model.
func (d *duel) info() {
	var got [2]string
	for n := range d.conns {
		var info struct {
			Faktory struct {
				Queues   map[string]int
				Sets     map[string]int
				Enqueued int `json:"total_enqueued"`
			}
		}
		reply := d.conns[n].ask(d.t, "INFO")
		if err := json.Unmarshal([]byte(strings.TrimPrefix(reply, "$ ")), &info); err != nil {
			d.t.Fatalf("INFO gives %s", reply)
		}
		for q, jobs := range info.Faktory.Queues {
			if jobs == 0 {
				delete(info.Faktory.Queues, q)
			}
		}
		totals := d.counts(n)
		got[n] = fmt.Sprint(info.Faktory.Queues, info.Faktory.Sets, info.Faktory.Enqueued, totals[0]-d.totals[n][0], totals[1]-d.totals[n][1])
	}
	d.compared["INFO"]++
	d.log = append(d.log, "INFO\n\t"+got[0])
	want := fmt.Sprint(map[string]int{"scheduled": len(d.in("scheduled")), "retries": len(d.in("retries")), "dead": len(d.in("dead")), "working": len(d.in("reserved"))})
	if got[0] != got[1] || !strings.Contains(got[0], want) {
		d.t.Fatalf("seed %d, after\n%s\nTreadle gives\n\t%s\nThe model has %s", d.seed, strings.Join(d.log, "\n"), got[1], want)
	}
}
