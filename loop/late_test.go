package loop

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"treadle/codec/periodic"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (j *logBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.said.Write(p)
}

func (j *logBuffer) log() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// lines returns the lines with a text.
func (j *logBuffer) lines(text string) (all []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.said.String()) {
		if strings.Contains(line, text) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// TestTooLateIsSaid: the log names the job and the worker of a job that exceeds its time-out, and of a report
// that comes after that. The metrics count both.
func TestTooLateIsSaid(t *testing.T) {
	t.Parallel()
	const name = "n\n\x1b[2J\""
	for _, framing := range []periodic.Framing{periodic.Plain, periodic.CRC} {
		log := &logBuffer{}
		r := startServer(t, Options{Log: log.log(), HTTP: "127.0.0.1:0"})
		worker := r.dial("tcp")
		worker.send(periodic.AppendHello(nil, &periodic.Hello{Framing: framing, Role: periodic.Worker}))
		frame := request
		if framing == periodic.CRC {
			frame = crcRequest
		}
		var handle []byte
		worker.send(frame(1, periodic.CanDo, str8("f")), frame(2, periodic.GrabJob))
		r.wantMetric("treadle_queues", 1)
		r.greet(periodic.Client).ask(1, periodic.SubmitJob, job("f", name), byte(periodic.Success))
		r.wantMetric("treadle_jobs_assigned_total", 1)
		if handle = jobName("f", name); framing == periodic.Plain {
			worker.next()
			handle, _ = assigned(t, worker.next())
		}
		r.sched.SetTimeout(1)
		r.wantMetric("treadle_jobs_timed_out_total", 1)
		r.until("the time-out to be told of", func() bool { return len(log.lines("longer than its time-out")) > 0 })
		worker.send(frame(3, periodic.WorkDone, handle))
		r.wantMetric("treadle_results_stale_total", 1)
		r.until("the report to be told of", func() bool { return len(log.lines("report does not count")) > 0 })
		for _, text := range []string{"longer than its time-out", "report does not count"} {
			line := log.lines(text)[0]
			for _, want := range []string{`level=WARN`, ` function=f `, ` job="n\n\x1b[2J\"" `, " worker=tcp://" + worker.LocalAddr().String() + " "} {
				if !strings.Contains(line, want) {
					t.Errorf("the line\n%s\ndoes not say%s", line, want)
				}
			}
		}
	}
}

// TestTooLateIsThrottled: very many of either are logged in few lines.
func TestTooLateIsThrottled(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	w := newMemServer(t, Options{Log: log.log()})
	c, worker := w.join(0, periodic.Client), w.worker(0, "f")
	const n = 500
	for i := range uint32(n) {
		c.send(request(i, periodic.SubmitJob, later("f", string(rune('a'+i)), 0)))
	}
	worker.grabs(1, n)
	frames := worker.frames()
	for range 3 {
		w.advance(10_000)
		w.logOverdue()
		w.settle()
	}
	if got := log.lines("longer than its time-out"); len(got) != 1 || !strings.Contains(got[0], "timeout=9s others=499") {
		t.Errorf("said %q", got)
	}
	for _, f := range frames {
		handle, _ := assigned(t, f)
		worker.send(request(1, periodic.WorkDone, handle))
	}
	if got := log.lines("report does not count"); len(got) != 1 || !strings.Contains(got[0], "function=f ") {
		t.Errorf("said %q", got)
	}
}
