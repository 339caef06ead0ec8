package client

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"treadle/codec/periodic"
)

const (
	handle  = "096608328707b4eb6e54" // of the captured reference server
	jobHi   = "0166016e000000026869000000000000000000"
	jobLast = "0166016e" + "00000000" + "000000006b012e35" + "01" + "00000002"
)

// TestWorkerTranscript follows the captured 2018 session.
func TestWorkerTranscript(t *testing.T) {
	w := connectWorker(t, periodic.Plain, func(p *peer) {
		p.wantRequest("00000001070166") // CAN_DO f, then PING
		p.wantRequest("0000000209")
		p.reply("000000020a")
		p.wantRequest("0000000301")
		p.reply("0000000305" + handle + jobHi)
		p.wantRequest("0000000402" + handle + "00000000000000010002")
		p.wantRequest("0000000501")
		p.reply("0000000505" + handle + jobLast)
		p.wantRequest("0000000604" + handle)
		p.wantRequest("0000000701")
		p.reply("0000000705" + handle + jobLast)
		p.wantRequest("0000000803" + handle + "6f6b")
		p.wantRequest("00000009150167") // BROADCAST g
		p.wantRequest("0000000a09")
		p.reply("0000000a0a")
		p.wantRequest("0000000b080166") // CANT_DO f
		p.wantRequest("0000000c09")
		p.reply("0000000b0c")
		p.reply("0000000c0a")
		p.drain()
	})
	ctx := within(t)
	check(t, w.CanDo(ctx, "f"), nil)
	a := grab(t, w, Job{Func: "f", Name: "n", Workload: []byte("hi")})
	check(t, w.Later(ctx, a, 1, 2), nil)
	again := Job{Func: "f", Name: "n", SchedAt: 0x6b012e35, Count: 2}
	check(t, w.Fail(ctx, grab(t, w, again)), nil)
	check(t, w.Done(ctx, grab(t, w, again), []byte("ok")), nil)
	check(t, w.Broadcast(ctx, "g"), nil)
	check(t, w.CantDo(ctx, "f"), ErrRefused)
}

func grab(t *testing.T, w *Worker, want Job) *Assignment {
	t.Helper()
	a, err := w.Grab(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a.Job, want) {
		t.Fatalf("got %+v, want %+v", a.Job, want)
	}
	return a
}

// TestWorkerCRC checks a worker in the versions of the CRC framing: notifications are answered, GRAB_JOB too since
// 2024, and function and name are the handle.
func TestWorkerCRC(t *testing.T) {
	w := connectWorker(t, periodic.CRC, func(p *peer) {
		p.wantRequest("00000001070166")
		p.wantRequest("0000000209")
		p.reply("0000000110")
		p.reply("000000020a")
		p.wantRequest("0000000301")
		p.reply("0000000310")
		p.reply("0000000305" + jobHi)
		p.wantRequest("0000000403" + "0166016e" + "6f6b")
		p.reply("0000000410")
		p.wantRequest("0000000509")
		p.reply("000000050a")
		p.drain()
	})
	ctx := within(t)
	check(t, w.CanDo(ctx, "f"), nil)
	a := grab(t, w, Job{Func: "f", Name: "n", Workload: []byte("hi")})
	check(t, w.Done(ctx, a, []byte("ok")), nil)
	check(t, w.Ping(ctx), nil)
}

// TestSeveralGrabs checks that each assignment reaches one of several slots of a connection.
func TestSeveralGrabs(t *testing.T) {
	read := make(chan struct{})
	w := connectWorker(t, periodic.Plain, func(p *peer) {
		for i := range 3 {
			p.wantRequest(fmt.Sprintf("%08x01", i+1))
			read <- struct{}{}
		}
		for _, id := range []int{2, 3, 1} {
			p.reply(fmt.Sprintf("%08x05", id) + handle + str8("f") + str8(fmt.Sprint(id)) + "00000000" + "0000000000000000" + "00")
		}
		p.drain()
	})
	names := make(chan string)
	for range 3 {
		go func() {
			a, err := w.Grab(within(t))
			if err != nil {
				names <- err.Error()
				return
			}
			names <- a.Job.Name
		}()
		<-read
	}
	got := []string{<-names, <-names, <-names}
	slices.Sort(got)
	if !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("got %v", got)
	}
}

// TestGrabGivenUp checks that a job for a cancelled slot is returned at once instead of after its
// time-out, and that the connection remains usable.
func TestGrabGivenUp(t *testing.T) {
	read, given, back := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w := connectWorker(t, periodic.Plain, func(p *peer) {
		p.wantRequest("0000000101")
		close(read)
		<-given
		p.reply("0000000105" + handle + jobHi)
		p.wantRequest("0000000204" + handle)
		close(back)
		p.wantRequest("0000000309")
		p.reply("000000030a")
		p.drain()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-read
		cancel()
	}()
	_, err := w.Grab(ctx)
	check(t, err, context.Canceled)
	close(given)
	<-back
	check(t, w.Ping(within(t)), nil)
}

// TestGrabDocument checks that after NO_JOB, which a server with --periodic-grab document sends,
// the worker sleeps until NOOP and asks again.
func TestGrabDocument(t *testing.T) {
	w := connectWorker(t, periodic.Plain, func(p *peer) {
		p.wantRequest("0000000101")
		p.reply("0000000106")
		p.wantRequest("000000020b")
		p.reply("0000000200")
		p.wantRequest("0000000301")
		p.reply("0000000305" + handle + jobHi)
		p.drain()
	})
	grab(t, w, Job{Func: "f", Name: "n", Workload: []byte("hi")})
}

func TestBadAssignments(t *testing.T) {
	f := func(body string) {
		t.Helper()
		w := connectWorker(t, periodic.Plain, func(p *peer) {
			p.wantRequest("0000000101")
			p.reply("00000001" + body)
			p.drain()
		})
		if a, err := w.Grab(within(t)); err == nil {
			t.Errorf("%s was taken for %+v", body, a)
		}
	}
	f("")
	f("0c")
	f("05")
	f("0509")
	f("05" + handle + jobHi[:20])
	f("05" + handle + jobHi[:len(jobHi)-2] + "09")
}
