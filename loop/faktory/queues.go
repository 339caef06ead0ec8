package faktory

import (
	"encoding/json"
	"strings"
	"time"

	codec "treadle/codec/faktory"
	"treadle/loop/protocol"
	"treadle/sched"
)

// faktoryVersion is the version of the original whose commands are served. Clients may look at it.
const faktoryVersion = "1.10.0"

// serverInfo is the answer to INFO.
type serverInfo struct {
	Now  string `json:"now"`
	UTC  string `json:"server_utc_time"`
	Data struct {
		Queues    map[string]int            `json:"queues"` // the ready jobs of each
		Sets      map[string]int            `json:"sets"`
		Tasks     map[string]map[string]int `json:"tasks"`
		Failures  uint64                    `json:"total_failures"`
		Processed uint64                    `json:"total_processed"`
		Enqueued  int                       `json:"total_enqueued"`
		Total     int                       `json:"total_queues"`
	} `json:"faktory"`
	Server struct {
		Description string `json:"description"`
		Version     string `json:"faktory_version"`
		Uptime      int64  `json:"uptime"` // seconds
		Connections int64  `json:"connections"`
		Commands    uint64 `json:"command_count"`
		Memory      int64  `json:"used_memory_mb"`
	} `json:"server"`
}

// info handles an INFO: it answers with the state of the server. It counts the jobs of all protocols, and the queues
// that have had jobs.
func (p *Protocol) info([]byte, protocol.Sink) []byte {
	var i serverInfo
	now, health, stats := p.host.Now(), p.host.Health(), p.sched.Stats()
	i.Now, i.UTC = timestamp(now.WallMicros), time.UnixMilli(now.Wall).UTC().Format("15:04:05 UTC")
	d := &i.Data
	d.Queues = make(map[string]int)
	d.Sets = map[string]int{"scheduled": 0, "retries": 0, "dead": 0, "working": 0}
	p.sched.Status(func(q sched.QueueStatus) {
		function, ok := protocol.Function(q.Name)
		if !ok || q.Spaces == 0 {
			return
		}
		ready := q.Jobs - q.Running - q.Parked - q.Delayed - q.Waiting
		d.Queues[string(function)] = ready
		d.Enqueued += ready
		d.Total++
		d.Sets["scheduled"] += q.Delayed - q.Retrying
		d.Sets["retries"] += q.Retrying
		d.Sets["dead"] += q.Failed
		d.Sets["working"] += q.Running
	})
	d.Failures = stats.RunsFailed + stats.TimedOut + stats.Abandoned
	d.Processed = stats.Done + d.Failures
	d.Tasks = map[string]map[string]int{
		"Busy": {"size": d.Sets["working"]}, "Dead": {"size": d.Sets["dead"]}, "Retries": {"size": d.Sets["retries"]},
		"Scheduled": {"size": d.Sets["scheduled"]}, "Workers": {"size": p.workers.count()},
	}
	s := &i.Server
	s.Description, s.Version = "Treadle", faktoryVersion
	s.Uptime, s.Memory = (now.Wall-health.Started)/1000, health.Memory>>20
	s.Connections, s.Commands = p.connections.Load(), p.commands.Load()
	answer, _ := json.Marshal(&i) // it has nothing that cannot be marshalled
	return codec.AppendBulk(nil, answer)
}

// changeQueues handles a QUEUE. PAUSE, RESUME and REMOVE take names, or * for all queues.
func (p *Protocol) changeQueues(text []byte, sink protocol.Sink) []byte {
	sub, names, _ := strings.Cut(string(text), " ")
	if names == "" {
		return p.errorReply("QUEUE needs a verb and names of queues")
	}
	all := strings.Split(names, " ")
	switch sub = strings.ToUpper(sub); sub {
	case "LATENCY":
		return p.latencies(all)
	case "PAUSE", "RESUME", "UNPAUSE", "REMOVE":
	default:
		return p.errorReply("QUEUE has no verb " + shortText(sub))
	}
	if all[0] == "*" {
		all = p.queueNames(sub)
	}
	for _, q := range all {
		var err error
		switch {
		case q == "":
		case sub == "REMOVE":
			err = p.removeQueue(q, sink)
		default:
			err = p.paused.set(q, sub == "PAUSE", p.host.PutSetting)
		}
		if err != nil {
			return p.errorReply(err.Error())
		}
	}
	return replyOK
}

// queueNames returns the queues that * stands for.
func (p *Protocol) queueNames(sub string) (all []string) {
	if sub == "RESUME" || sub == "UNPAUSE" {
		return p.paused.all()
	}
	p.sched.Status(func(q sched.QueueStatus) {
		if function, ok := protocol.Function(q.Name); ok && q.Spaces>>Space&1 != 0 && len(all) < maxPaused {
			all = append(all, string(function))
		}
	})
	return all
}

// removeQueue removes the ready jobs of a queue, and ends its pause. Jobs of other protocols stay.
func (p *Protocol) removeQueue(queue string, sink protocol.Sink) error {
	what := &selection{queue: queue, states: sched.StatesOf(sched.JobReady)}
	p.change(what, &sched.JobChange{Verb: sched.RemoveJobs}, sink)
	return p.paused.set(queue, false, p.host.PutSetting)
}

// latencies answers with the seconds that the first ready job of each queue has waited.
func (p *Protocol) latencies(queues []string) []byte {
	if queues[0] == "*" {
		return p.errorReply("QUEUE LATENCY needs names of queues")
	}
	now := p.host.Now()
	all := make(map[string]float64)
	for _, q := range queues {
		l, _ := sched.NewListing(&sched.Match{States: sched.StatesOf(sched.JobReady)}, protocol.Queue([]byte(q)), false, "") // it has no cursor that could be wrong
		all[q] = 0
		p.sched.List(now, l, sched.WalkBatch, func(v *sched.JobView) (more bool) {
			all[q] = max(float64(now.Wall-enqueuedAt(&v.Job))/1000, 0)
			return false
		})
	}
	answer, _ := json.Marshal(all) // it has nothing that cannot be marshalled
	return codec.AppendBulk(nil, answer)
}

// enqueuedAt returns when a ready job was enqueued, in Unix milliseconds.
func enqueuedAt(j *sched.Job) int64 {
	if j.Space == Space && j.SchedAt == 0 {
		if at := pushedAt(j.Workload); at != 0 {
			return at
		}
	}
	return j.Due
}

// pushedAt returns when a job was pushed, in Unix milliseconds; 0: it was scheduled then.
func pushedAt(workload []byte) int64 {
	f, err := codec.Parse[struct {
		At time.Time `json:"enqueued_at"`
	}](workload)
	if err != nil || f.At.IsZero() {
		return 0
	}
	return f.At.UnixMilli()
}
