package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/panjf2000/gnet/v2"
)

const (
	// FramesAJob are the requests of one job: submit, grab and done.
	FramesAJob = 3
	// echoReadBuffer is as large as the server's.
	echoReadBuffer = 64 << 10
)

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
	if err == nil {
		_, err = c.Write(in)
	}
	if err == nil {
		_, err = c.Discard(len(in))
	}
	if err != nil {
		return gnet.Close
	}
	return gnet.None
}

// ServeFrameEcho is one loop of gnet that sends back everything until ctx ends: the limit of the sockets.
func ServeFrameEcho(ctx context.Context, address string) error {
	return gnet.Run(&frameEchoer{ctx: ctx}, "tcp://"+address, gnet.WithNumEventLoop(1), gnet.WithReadBufferCap(echoReadBuffer), gnet.WithReuseAddr(true))
}

// echoing is one connection that keeps the requests of jobs in flight: submit, grab, done, and again. It counts the bytes
// that come back; the frames are known from those.
type echoing struct {
	frames *echoed
	job    [FramesAJob][]byte // the requests of one job
	most   int                // frames in flight
	sent   int                // frames
	back   int                // whole frames
	offset int                // bytes of the frame that is coming back
}

// echoed is what the connections of one pump got back, and the goal of that pump.
type echoed struct{ wanted, got int }

func (e *echoed) reached() bool { return e.got >= e.wanted }
func (e *echoed) progress() int { return e.got }

func newEchoing(p Protocol, frames *echoed, most int) *echoing {
	done := &Event{Handle: append([]byte{byte(len(QueueName) + JobNameLen)}, make([]byte, len(QueueName)+JobNameLen)...)}
	return &echoing{frames: frames, most: most, job: [...][]byte{p.AppendSubmit(nil, 1, 1, 1), p.AppendGrab(nil, 1), p.AppendDone(nil, done)}}
}

func (e *echoing) open(_ int64, out []byte) []byte {
	for ; e.sent < e.back+e.most; e.sent++ {
		out = append(out, e.job[e.sent%FramesAJob]...)
	}
	return out
}

func (e *echoing) turn(now int64, in, out []byte) (int, []byte, error) {
	for rest := len(in); rest > 0; {
		frame := len(e.job[e.back%FramesAJob])
		part := min(rest, frame-e.offset)
		rest -= part
		if e.offset += part; e.offset == frame {
			e.offset = 0
			e.back++
			e.frames.got++
		}
	}
	if e.back > e.sent {
		return len(in), out, fmt.Errorf("%w: more came back than was sent", ErrMalformed)
	}
	return len(in), e.open(now, out), nil
}

// mute greets nobody: an echo has nothing to say.
type mute struct{ Protocol }

// Greet implements Protocol.
func (mute) Greet(net.Conn, Role) error { return nil }

// EchoFrames has the frames of the trial's jobs sent back, over as many connections as producers and workers have, in two
// pumps as those, and returns how many nanoseconds that took.
func (t *Trial) EchoFrames() (int64, error) {
	frames := FramesAJob * t.Load.Jobs
	to := t.sides.Produce
	to.Protocol = mute{to.Protocol}
	halves := [2]*echoed{{wanted: frames / 2}, {wanted: frames - frames/2}}
	for i, at := range []**pump{&t.producers, &t.workers} {
		var err error
		*at, err = t.connect(to, Idling, t.Load.Connections, func() conversation {
			return newEchoing(to.Protocol, halves[i], t.Load.Depth)
		})
		if err != nil {
			return 0, err
		}
	}
	start := Now()
	var all sync.WaitGroup
	var failed [2]error
	for i, p := range []*pump{t.producers, t.workers} {
		all.Go(func() {
			if failed[i] = p.open(); failed[i] == nil {
				failed[i] = p.run(halves[i], &t.stop, StallLimit)
			}
		})
	}
	all.Wait()
	return Now() - start, errors.Join(failed[:]...)
}
