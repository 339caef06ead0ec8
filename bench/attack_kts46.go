package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"treadle/codec/kts46"
)

// manyProjects make an answer of about two megabytes.
const manyProjects = 10_000

// post is a call over HTTP, or how one begins: what is behind the head's first lines.
func post(path, rest string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + rest
}

// whole is a call with its length.
func whole(path, call string) string {
	return post(path, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(call), call))
}

// xmlCall is one of version 1.
func xmlCall(method string, params ...any) string {
	return whole("/RPC2", string(kts46.AppendCall(nil, method, params...)))
}

// ktsAttacks are those that come to either port of kts46; hello is a call there.
func ktsAttacks(path, hello string) []attack {
	return []attack{
		{name: "no attack"},
		{name: "slow heads", do: func(c net.Conn) error { return drip(c, post(path, "X: ")) }},
		{name: "slow bodies", do: func(c net.Conn) error { return drip(c, post(path, "Content-Length: 1000000\r\n\r\n")) }},
		{name: "4 GiB announced", do: func(c net.Conn) error { return send(c, []byte(post(path, "Content-Length: 4294967296\r\n\r\n"))) }},
		{name: "4 GiB in a chunk", do: func(c net.Conn) error {
			return flood(c, strings.Repeat("0", 64<<10), []byte(post(path, "Transfer-Encoding: chunked\r\n\r\n100000000\r\n")))
		}},
		{name: "never reading", do: func(c net.Conn) error { return flood(c, strings.Repeat(hello, 500)) }},
		{name: "10,000 idle", do: func(c net.Conn) error { return send(c, []byte(hello)) }, count: idlers},
		{name: "connecting and leaving", do: net.Conn.Close},
	}
}

// Those that only version 1 has the calls for, beside those that both have.
var (
	xmlAttacks = slices.Concat(ktsAttacks("/RPC2", xmlCall("hello")), []attack{
		{name: "names that collide", count: 4, do: func(c net.Conn) error { // of which there may be so many: the others are refused
			var text strings.Builder
			for i := range collisions {
				text.WriteString(xmlCall("createProject", colliding(i)))
			}
			return floodReading(c, text.String())
		}},
		{name: "giant status", count: 8, first: foundProjects, do: func(c net.Conn) error {
			return floodReading(c, xmlCall("getServerStatus"))
		}},
	})
	jsonAttacks = ktsAttacks("/jsonrpc", whole("/jsonrpc", `{"method":"hello","id":1}`))
)

// foundProjects creates many.
func foundProjects(c net.Conn) error {
	go func() { // an error shows in what is read
		for i := range manyProjects {
			if send(c, []byte(xmlCall("createProject", fmt.Sprintf("project %064d", i)))) != nil {
				return
			}
		}
	}()
	for answers, i := bufio.NewReader(c), 0; i < manyProjects; i++ {
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		if _, err := kts46.ReadAnswer(answer.Body); err != nil {
			return err
		}
		if err := answer.Body.Close(); err != nil {
			return err
		}
	}
	return nil
}
