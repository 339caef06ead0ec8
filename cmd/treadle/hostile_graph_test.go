package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"treadle/codec/dwork"
	"treadle/loop/client"
)

// The attacks here make graphs of which a small request needs much.

// graphEach is how many tasks wait for one, or are waited for by one.
const graphEach = 50_000

// graphRequest is how many tasks a request makes, each of which waits for one.
const graphRequest = 25_000

// many makes so many tasks, all of which wait for others.
func (s *attack) many(ctx context.Context, hub *client.Hub, prefix string, n int, after func(i int) []string) {
	s.t.Helper()
	all := make([]client.DworkTask, 0, n)
	for i := range n {
		all = append(all, client.DworkTask{Name: fmt.Sprint(prefix, i), After: after(i)})
	}
	for some := range slices.Chunk(all, graphRequest) {
		must(s.t, hub.Create(ctx, some...))
	}
}

func alone(int) []string { return nil }

// behind has each of a prefix wait for the one before.
func behind(prefix string) func(i int) []string {
	return func(i int) []string { return []string{fmt.Sprint(prefix, i-1)} }
}

// joins has a task wait for very many, and then again and again for one that very many wait for.
func (s *attack) joins() {
	ctx := patient(s.t)
	hub := worked(client.DialHub(ctx, s.ports["dwork"]))(s.t)
	defer hub.Close()
	s.many(ctx, hub, "p", graphEach, alone)
	s.many(ctx, hub, "s", graphEach, func(int) []string { return []string{"p0"} })
	join := client.DworkTask{Name: "join"}
	for i := range graphEach {
		join.After = append(join.After, fmt.Sprint("p", i))
	}
	must(s.t, hub.Create(ctx, join))
	must(s.t, hub.Create(ctx, join, client.DworkTask{Name: "join", After: slices.Repeat([]string{"p0"}, graphEach)}))
}

// joined has very many peers ask again and again for a task that waits for very many, and not read
// what they get.
func (s *attack) joined() {
	ctx := patient(s.t)
	hub := worked(client.DialHub(ctx, s.ports["dwork"]))(s.t)
	defer hub.Close()
	s.many(ctx, hub, "p", graphEach, alone)
	join := client.DworkTask{Name: "join"}
	for i := range graphEach {
		join.After = append(join.After, fmt.Sprint("p", i))
	}
	must(s.t, hub.Create(ctx, join))
	look := dwork.AppendName(dwork.AppendType(nil, dwork.Lookup), []byte("join"))
	again := strings.Repeat(string(framed(look)), 2000)
	for range 10 {
		c := s.dialFrom(net.Dialer{Control: littleRoom}, "dwork")
		defer c.Close()
		_, err := io.WriteString(c, string(zmtp())+again)
		must(s.t, err)
	}
	for range 4 { // behind theirs
		worked(hub.Lookup(ctx, "p0"))(s.t)
	}
}

// framed is a request as a DEALER sends it.
func framed(payload []byte) []byte {
	return append([]byte{1, 0, 0, byte(len(payload))}, payload...)
}

// reorders has the front of a long chain wait, again and again, for what comes after another: in
// one request, in one after the other, and in very many at once.
func (s *attack) reorders() {
	ctx := patient(s.t)
	hub := worked(client.DialHub(ctx, s.ports["dwork"]))(s.t)
	defer hub.Close()
	s.many(ctx, hub, "a", graphEach, behind("a"))
	s.many(ctx, hub, "b", graphEach, behind("b"))
	last := fmt.Sprint("b", graphEach-1)
	pair := func(i int) []client.DworkTask {
		z := fmt.Sprint("z", i)
		return []client.DworkTask{{Name: z, After: []string{last}}, {Name: "a0", After: []string{z}}}
	}
	var all []client.DworkTask
	for i := range 10_000 {
		all = append(all, pair(i)...)
	}
	if err := hub.Create(ctx, all...); err == nil {
		s.t.Error("a request that has two long chains change places ten thousand times is not refused")
	}
	for n := range 5 {
		many := string(zmtp())
		for i := range 2000 {
			create := dwork.AppendType(nil, dwork.Create)
			for _, t := range pair(n*2000 + i) {
				create = dwork.AppendTask(create, []byte(t.Name), nil, dwork.AppendPred(nil, dwork.Dep{Name: []byte(t.After[0])}))
			}
			many += string(framed(create))
		}
		c := s.dialFrom(net.Dialer{Control: littleRoom}, "dwork")
		defer c.Close()
		_, err := io.WriteString(c, many)
		must(s.t, err)
	}
	for i := range 20 { // beside the first of those
		must(s.t, hub.Create(ctx, pair(10_000+i)...))
	}
}
