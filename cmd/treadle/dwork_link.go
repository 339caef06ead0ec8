package main

import (
	"context"
	"errors"
	"time"

	"treadle/loop/client"
)

// link is one worker's way to the hub, which is made again when it breaks: as with libzmq's
// sockets, a hub that is started anew finds its workers, and its tasks are still theirs.
type link struct {
	*team
	hub *client.Hub // nil while it is away

	lastFailed bool // the last command has
	rest       backoff
}

// errStopping is a hub that answers Exit to something else than a steal.
var errStopping = errors.New("the hub is stopping")

// lost says that a request's reply did not come, so that nobody knows what became of it.
func lost(err error) bool {
	return err != nil && !errors.Is(err, client.ErrNoTask) && !errors.Is(err, client.ErrAllDone) && !errors.Is(err, client.ErrHubRefused)
}

func (l *link) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	hub, err := client.DialHub(ctx, l.server)
	if err == nil {
		l.hub = hub
	}
	return err
}

func (l *link) close() {
	if l.hub != nil {
		l.hub.Close()
		l.hub = nil
	}
}

// ask makes a request, again and again until the hub answers, or, once stop has ended, one
// last time. A request that is under way is not cut short by stop: what the hub hands out
// then would have nobody to do it.
func (l *link) ask(stop context.Context, request func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := l.once(request)
		if !lost(err) {
			return err
		}
		l.close()
		if stop.Err() != nil {
			return err
		}
		if l.away.CompareAndSwap(false, true) {
			l.con.say("lost the hub at %s: %v; trying again until it is back", l.server, err)
		}
		select {
		case <-stop.Done():
		case <-time.After(pause):
		}
	}
}

// once makes a request, if there is a hub to be found.
func (l *link) once(request func(context.Context) error) error {
	if l.hub == nil {
		if err := l.dial(context.Background()); err != nil {
			return err
		}
		if l.away.CompareAndSwap(true, false) {
			l.con.say("connected to %s again", l.server)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	return request(ctx)
}

// tell is ask for what a hub that is stopping has to hear when it is back.
func (l *link) tell(stop context.Context, request func(context.Context) error) error {
	return l.ask(stop, func(ctx context.Context) error {
		err := request(ctx)
		if errors.Is(err, client.ErrAllDone) {
			return errStopping
		}
		return err
	})
}
