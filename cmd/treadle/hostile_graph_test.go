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

// The attacks of this file make graphs in which a small request is expensive.

// graphEach is the number of successors, or of predecessors, of one task.
const graphEach = 50_000

// graphRequest is the number of tasks in a request, each with one predecessor.
const graphRequest = 25_000

// many makes n tasks that wait for others.
func (s *attack) many(ctx context.Context, hub *client.HubClient, prefix string, n int, after func(i int) []string) {
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

// behind makes the predecessors of a chain: each task of a prefix waits for the task before it.
func behind(prefix string) func(i int) []string {
	return func(i int) []string { return []string{fmt.Sprint(prefix, i-1)} }
}

// joins makes a task with very many predecessors, then adds again and again a predecessor with very many successors.
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

// joined has very many peers look up a task with very many predecessors again and again, and read no reply.
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

// framed frames a request as a DEALER does.
func framed(payload []byte) []byte {
	return append([]byte{1, 0, 0, byte(len(payload))}, payload...)
}

// reorders makes the first task of a long chain wait for the last of another again and again: in one request, in one
// request after the other, and in very many requests at once.
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
