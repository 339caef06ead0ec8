package loop

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"testing"
	"time"

	"treadle/codec/periodic"
)

// loadFrame is a LOAD of n jobs of a function.
func loadFrame(id uint32, function string, n int) []byte {
	args := count(n)
	for i := range n {
		args = periodic.AppendJob(args, &periodic.Job{
			Func: []byte(function), Name: fmt.Append(nil, i), Workload: []byte("12345678"), SchedAt: int64(i % 7), Count: int32(i % 3),
		})
	}
	return request(id, periodic.Load, args)
}

// read reads one frame of any size and returns the bytes behind its message id. It calls meanwhile
// between the parts.
func (w *testConn) read(meanwhile func()) []byte {
	w.t.Helper()
	head := make([]byte, 12)
	w.fill(head)
	body := make([]byte, binary.BigEndian.Uint32(head[4:])-4)
	for at := 0; at < len(body); {
		meanwhile()
		n := min(len(body)-at, 1<<20)
		w.fill(body[at : at+n])
		at += n
	}
	return body
}

func (w *testConn) fill(b []byte) {
	w.t.Helper()
	for n := copy(b, w.in); n < len(b); {
		w.in = nil
		w.SetReadDeadline(time.Now().Add(patience))
		k, err := io.ReadAtLeast(w.Conn, b[n:], 1)
		if err != nil {
			w.t.Fatal(err)
		}
		n += k
	}
	if len(w.in) > 0 {
		w.in = w.in[len(b):]
	}
}

// fingerprint is the count of a dump and a sum over its records, which does not
// depend on their order.
func fingerprint(t *testing.T, dump []byte) (n int64, sum uint64) {
	t.Helper()
	n, rest, _ := periodic.Int64(dump)
	for range n {
		var j periodic.Job
		k, err := periodic.ParseJob(rest, &j)
		if err != nil {
			t.Fatalf("a dump of %d bytes cannot be read %d bytes before its end: %v", len(dump), len(rest), err)
		}
		sum += maphash.Bytes(seed, rest[:k])
		rest = rest[k:]
	}
	if len(rest) > 0 {
		t.Errorf("%d bytes behind the last record of a dump", len(rest))
	}
	return n, sum
}

var seed = maphash.MakeSeed()

// TestMillionJobs: a million jobs are loaded and dumped while another client's
// requests are served, and the dump, loaded into another server, gives the same
// dump. The loading peer never waits for a reply, the dumping one reads slowly.
func TestMillionJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	t.Parallel()
	n := 1_000_000
	if raceDetector {
		n = 100_000
	}
	r := startServer(t, Options{Loops: 1})
	loader, other := r.greet(periodic.Client), r.greet(periodic.Client)
	served := 0
	serve := func() {
		other.ping()
		other.ask(1, periodic.SubmitJob, job("other", fmt.Sprint(served)), byte(periodic.Success))
		served++
	}
	frame := loadFrame(7, "f", n)
	sent := make(chan error, 1)
	go func() {
		for piece := range slices.Chunk(frame[:len(frame)-10], 1<<16) {
			if err := loader.trySend(piece); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for loading := true; loading; {
		serve()
		select {
		case err := <-sent:
			if err != nil {
				t.Fatal(err)
			}
			loading = false
		default:
		}
	}
	serve()
	loader.send(frame[len(frame)-10:])
	loader.want(7, byte(periodic.Success))

	worker := r.greet(periodic.Worker)
	worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob), request(3, periodic.GrabJob))
	assigned(t, worker.next())
	assigned(t, worker.next())
	loader.send(request(8, periodic.Dump))
	before := served
	dump := loader.read(serve)
	jobs, sum := fingerprint(t, dump)
	if least := n + before; int(jobs) < least || int(jobs) > n+served {
		t.Errorf("a dump of %d jobs, want %d to %d", jobs, least, n+served)
	}

	copy := startServer(t, Options{Loops: 2}).greet(periodic.Client)
	copy.send(request(1, periodic.Load, dump))
	copy.want(1, byte(periodic.Success))
	copy.send(request(2, periodic.Dump))
	if again, sumAgain := fingerprint(t, copy.read(func() {})); again != jobs || sumAgain != sum {
		t.Errorf("loaded and dumped again, %d jobs are %d, the same: %v", jobs, again, sumAgain == sum)
	}
}

// TestLoadSlowly: each job of a LOAD that comes byte by byte is handed out with its last byte.
func TestLoadSlowly(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Loops: 2})
	client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
	worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob), request(3, periodic.GrabJob), request(4, periodic.GrabJob))
	frame := loadFrame(1, "f", 3)
	at, end := 0, len(request(1, periodic.Load, count(3)))
	for k := range 3 {
		var next periodic.Job
		n, err := periodic.ParseJob(frame[end:], &next)
		if err != nil {
			t.Fatal(err)
		}
		for end += n; at < end; at++ {
			client.send(frame[at : at+1])
		}
		if _, j := assigned(t, worker.next()); string(j.Name) != fmt.Sprint(k) {
			t.Errorf("job %q came in place %d", j.Name, k)
		}
	}
	client.want(1, byte(periodic.Success))
}
