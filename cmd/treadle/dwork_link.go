package main

import (
	"context"
	"errors"
	"time"

	"treadle/loop/client"
)

// link is one worker's connection to the hub. It connects again when the connection breaks, as libzmq's sockets do, so
// workers keep their tasks over a restart of the hub.
type link struct {
	*dworkWorkers
	hub *client.HubClient // nil: not connected

	lastFailed bool // the last command failed
	rest       backoff
}

// errStopping is a hub's answer Exit to another request than a steal.
var errStopping = errors.New("the hub is stopping")

// lost reports whether a request has had no reply: the hub may have carried it out or not.
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

// ask repeats a request until the hub answers, and after the end of stop makes it once more at most. The end of stop
// does not cut a request short: a task that the hub hands out then would be done by no worker.
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

// once connects if necessary and makes a request.
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

// tell is ask for a request that a stopping hub must get again when it is back.
func (l *link) tell(stop context.Context, request func(context.Context) error) error {
	return l.ask(stop, func(ctx context.Context) error {
		err := request(ctx)
		if errors.Is(err, client.ErrAllDone) {
			return errStopping
		}
		return err
	})
}
