package load

import (
	"context"

	"github.com/panjf2000/gnet/v2"
)

// echoReadBuffer is as large as the server's.
const echoReadBuffer = 64 << 10

// frameEchoer answers each read with one write, as the server does.
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
