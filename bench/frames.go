package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
)

const (
	// frameEcho is no job server: one loop of gnet that sends back what it gets. It is the limit of the sockets.
	frameEcho = "frames"
	// framesAJob are the requests of one job: submit, grab and done.
	framesAJob = 3
	// echoReadBuffer is as large as the server's.
	echoReadBuffer = 64 << 10
)

// frameEchoContender is this program itself, run as an echo.
func frameEchoContender() (contender, error) {
	self, err := os.Executable()
	if err != nil {
		return contender{}, err
	}
	return contender{name: frameEcho, variant: frameEcho, start: command{path: self, arguments: func(ports [portCount]string, _ string) []string {
		return []string{"-echo-frames", "127.0.0.1:" + ports[0]}
	}}.start}, nil
}

// frameEchoer writes once what it has read, as the server does.
type frameEchoer struct {
	gnet.BuiltinEventEngine
	ctx context.Context
}

// OnBoot implements gnet.EventHandler.
func (e *frameEchoer) OnBoot(engine gnet.Engine) gnet.Action {
	context.AfterFunc(e.ctx, func() { _ = engine.Stop(context.Background()) })
	return gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (*frameEchoer) OnTraffic(c gnet.Conn) gnet.Action {
	in, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err = c.Write(in); err != nil {
		return gnet.Close
	}
	if _, err = c.Discard(len(in)); err != nil {
		return gnet.Close
	}
	return gnet.None
}

// echoFrames sends back everything until ctx ends.
func echoFrames(ctx context.Context, address string) error {
	return gnet.Run(&frameEchoer{ctx: ctx}, "tcp://"+address, gnet.WithNumEventLoop(1), gnet.WithReadBufferCap(echoReadBuffer), gnet.WithReuseAddr(true))
}

// echoing is one connection that keeps the requests of jobs in flight: submit, grab, done, and again. It counts the bytes
// that come back; the frames are known from those.
type echoing struct {
	frames *echoed
	stream []byte // the requests of one job
	ends   [framesAJob]int
	most   int // frames in flight
	sent   int // frames
	back   int // whole frames
	offset int // bytes of the frame that is coming back
}

// echoed is what the connections of one pump got back, and the goal of that pump.
type echoed struct{ wanted, got int }

func (e *echoed) reached() bool { return e.got >= e.wanted }
func (e *echoed) progress() int { return e.got }

func newEchoing(frames *echoed, most int) *echoing {
	p := newPeriodic()
	e := &echoing{frames: frames, most: most, stream: p.appendSubmit(nil, 1, 1, 1)}
	e.ends[0] = len(e.stream)
	e.stream = p.appendGrab(e.stream, 1)
	e.ends[1] = len(e.stream)
	handle := append([]byte{byte(len(queueName) + jobNameLen)}, make([]byte, len(queueName)+jobNameLen)...)
	e.stream = p.appendDone(e.stream, &event{handle: handle})
	e.ends[2] = len(e.stream)
	return e
}

// frame is the bytes of the frame with the given number.
func (e *echoing) frame(number int) []byte {
	i := number % framesAJob
	if i == 0 {
		return e.stream[:e.ends[0]]
	}
	return e.stream[e.ends[i-1]:e.ends[i]]
}

func (e *echoing) open(_ int64, out []byte) []byte {
	for ; e.sent < e.back+e.most; e.sent++ {
		out = append(out, e.frame(e.sent)...)
	}
	return out
}

func (e *echoing) turn(now int64, in, out []byte) (int, []byte, error) {
	for rest := len(in); rest > 0; {
		part := min(rest, len(e.frame(e.back))-e.offset)
		rest -= part
		if e.offset += part; e.offset == len(e.frame(e.back)) {
			e.offset = 0
			e.back++
			e.frames.got++
		}
	}
	if e.back > e.sent {
		return len(in), out, fmt.Errorf("%w: more came back than was sent", errMalformed)
	}
	return len(in), e.open(now, out), nil
}

// echoFlow times the frames, over as many connections as producers and workers have, in two pumps as those.
func (s *sample) echoFlow(ctx context.Context, l load, running *server, frames int) error {
	speak := side{protocol: mute{newPeriodic()}, network: running.network, address: running.address}
	t := newTrial(ctx, sides{speak, speak, speak}, l)
	defer t.close()
	halves := [2]*echoed{{wanted: frames / 2}, {wanted: frames - frames/2}}
	for i, at := range []**pump{&t.producers, &t.workers} {
		var err error
		*at, err = t.connect(idling, l.connections, func() conversation { return newEchoing(halves[i], l.depth) })
		if err != nil {
			return err
		}
	}
	before, err := readMeter(running.pid)
	if err != nil {
		return err
	}
	start := now()
	var all sync.WaitGroup
	var failed [2]error
	for i, p := range []*pump{t.producers, t.workers} {
		all.Go(func() {
			if failed[i] = p.open(); failed[i] == nil {
				failed[i] = p.run(halves[i], &t.stop, stallLimit)
			}
		})
	}
	all.Wait()
	elapsed := time.Duration(now() - start)
	after, err := readMeter(running.pid)
	for _, e := range append(failed[:], err) {
		if e != nil {
			return e
		}
	}
	s.Jobs = frames / framesAJob
	perMillion := 1e6 / float64(s.Jobs)
	s.JobsPerSecond = float64(frames) / framesAJob / elapsed.Seconds()
	s.ServerCPU, s.DriverCPU = (after.server-before.server).Seconds()*perMillion, (after.driver-before.driver).Seconds()*perMillion
	return nil
}

// mute greets nobody: an echo has nothing to say.
type mute struct{ *periodic }

func (mute) greet(net.Conn, role) error { return nil }
