package main

import (
	"bufio"
	enc "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gloomcodec "treadle/codec/gloom"
	"treadle/codec/kts46"
	"treadle/codec/periodic"
	"treadle/loop/client"
)

// hello returns the first packet of a Periodic peer of 2018.
func hello(role periodic.Role) []byte {
	return periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.Plain, Role: role})
}

// ask appends a Periodic request of 2018.
func ask(dst []byte, id uint32, cmd periodic.Command, args []byte) []byte {
	start := len(dst)
	dst = periodic.AppendMessage(periodic.BeginRequest(dst, periodic.Plain), id, cmd)
	dst = append(dst, args...)
	periodic.End(dst, start, periodic.Plain)
	return dst
}

// The greeting of ZMTP 3.1 with the NULL mechanism, and the READY of a DEALER.
const (
	zmtpGreeting = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"
	zmtpReady    = "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
)

// zmtp is the beginning of a ZeroMQ connection.
func zmtp() []byte {
	return []byte(zmtpGreeting + strings.Repeat("\x00", 64-len(zmtpGreeting)) + zmtpReady)
}

// faktoryHello is the first line of a Faktory client.
const faktoryHello = "HELLO {\"v\":2}\r\n"

// greetings maps protocols to the bytes that a peer sends before its first request.
var greetings = map[string]string{"periodic": string(hello(periodic.Client)), "dwork": string(zmtp()), "faktory": faktoryHello}

// unfinished maps protocols to beginnings of requests that never end.
var unfinished = onHTTP(map[string][]string{
	"periodic":      {string(hello(periodic.Client)[:5]), string(hello(periodic.Client)) + "\x00REQ\x00\x10\x00\x00\x00\x00\x00\x01\x0d"},
	"gloom-masters": {"\x00\x00\x10\x00{"},
	"gloom-slaves":  {"\x00\x00"},
	"dwork":         {string(zmtp()[:20]), string(zmtp()) + "\x01\x00\x02\x00\x00\x00\x00\x00\x10\x00\x00"},
	"beanstalk":     {"use t", "put 0 0 60 1000\r\nhalf a job", "put 0 0 60 100000\r\nhalf of a job that is too large", "put 0 0 60 9\x00"},
	"faktory":       {"HELL", faktoryHello + `PUSH {"jid":"job-`, faktoryHello + "PUSHB [\x00"},
}, func(path string) []string {
	return []string{"PO", post(path, "Content-Le"), post(path, "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n"), post(path, "Content-Length: 1000\r\n\r\n<"), post(path, "Transfer-Encoding: chunked\r\n\r\n100\r\n<")}
})

// huge maps protocols to beginnings that announce four gigabytes.
var huge = onHTTP(map[string][]string{
	"periodic":      {string(hello(periodic.Client)) + "\x00REQ\xff\xff\xff\xff\x00\x00\x00\x01\x0d"},
	"gloom-masters": {"\xff\xff\xff\xff{"},
	"gloom-slaves":  {"\xff\xff\xff\xff{"},
	"dwork":         {string(enc.BigEndian.AppendUint64(append(zmtp(), 2), 4<<30))},
	"beanstalk":     {"put 0 0 60 4294967295\r\n"},
	"faktory":       {"$4294967296\r\n"},
}, func(path string) []string { return []string{post(path, "Content-Length: 4294967296\r\n\r\n")} })

// flowing maps protocols to beginnings of four gigabytes without an announced length.
var flowing = onHTTP(map[string][]string{"periodic": {""}, "gloom-masters": {""}, "gloom-slaves": {""}, "dwork": {""}, "beanstalk": {"", "use "}, "faktory": {"HELLO ", faktoryHello + "PUSH "}}, func(path string) []string {
	return []string{post(path, "X: "), post(path, "Transfer-Encoding: chunked\r\n\r\n100000000\r\n")}
})

// endless maps protocols to the request that a peer repeats without reading the replies.
var endless = map[string]string{
	"periodic":      string(ask(nil, 1, periodic.ConfigGet, periodic.AppendStr8String(nil, "timeout"))),
	"gloom-masters": string(gloomcodec.AppendRespond(nil, []byte("1"))),
	"gloom-slaves":  string(gloomcodec.AppendRespond(nil, []byte("1"))),
	"dwork":         "\x01\x00\x00\x02\x08\x06",
	"beanstalk":     "use " + longName[:200] + "\r\n",
	"faktory":       "TRACK GET " + longName[:255] + "\r\n",
	"kts46":         whole("/RPC2", string(kts46.AppendCall(nil, longName))),
	"kts46-json":    whole("/jsonrpc", `{"method":"hello","id":"`+longName+`"}`),
	"http":          "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
}

// longName comes back in the reply, so that a few replies fill the system's buffers.
var longName = strings.Repeat("x", 4<<10)

// neverRead writes until the server hangs up. The server may go on as long as the system's buffers take its replies.
func neverRead(c net.Conn, first, again string) error {
	defer c.Close()
	_, err := io.WriteString(c, first)
	for again = strings.Repeat(again, 1+(64<<10)/len(again)); err == nil; {
		if err = c.SetDeadline(time.Now().Add(hostilePatience)); err == nil {
			_, err = io.WriteString(c, again)
		}
	}
	return err
}

// floods sends the inputs that crashed ZeroMQ libraries and the original hub again and again, and reads the replies.
// The server may hang up.
func (s *attack) floods() {
	again := map[string]string{
		"parts without an end":       "\x01\x00",
		"requests without delimiter": "\x00\x02\x08\x06",
		"requests of more parts":     "\x01\x00\x01\x02\x08\x06\x00\x02\x08\x06",
		"heartbeats":                 "\x04\x07\x04PING\x00\x00",
	}
	var all sync.WaitGroup
	for _, text := range again {
		for range 4 * s.scale {
			all.Go(func() {
				c := s.dial("dwork")
				defer c.Close()
				go func() { _, _ = io.Copy(io.Discard, c) }()
				_, _ = io.WriteString(c, string(zmtp())+strings.Repeat(text, (1<<20)/len(text)))
			})
		}
	}
	all.Wait()
}

// projects creates projects with names that collide in common hashes up to the server's limit, and asks for the status
// of all of them.
func (s *attack) projects() {
	const bits = 12
	create := ""
	for i := range 1 << bits {
		var name strings.Builder
		for bit := range bits {
			name.WriteString([]string{"Aa", "BB"}[i>>bit&1])
		}
		create += whole("/RPC2", string(kts46.AppendCall(nil, "createProject", name.String())))
	}
	c := s.dial("kts46")
	defer c.Close()
	go func() { _, _ = io.WriteString(c, create) }() // an error shows in what is read
	for answers, i := bufio.NewReader(c), 0; i < 1<<bits; i++ {
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			s.t.Fatalf("project %d: %v", i, err)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		must(s.t, err)
		answer.Body.Close()
	}
	for range 8 * s.scale {
		if status, body := s.asks("kts46", whole("/RPC2", string(kts46.AppendCall(nil, "getServerStatus")))); status != http.StatusOK || len(body) < 1<<bits*2*bits {
			s.t.Errorf("%d, a status of %d bytes", status, len(body))
		}
	}
}

// littleRoom shrinks the receive buffer of a socket before it connects, to what one packet on the loopback interface
// takes: with less, or later, the system would drop bytes that are on their way, and the end of the connection too. A
// peer that goes on writing must not have it: the system drops the end of its connection when replies are short.
func littleRoom(_, _ string, c syscall.RawConn) error {
	var refused error
	err := c.Control(func(fd uintptr) {
		refused = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10)
	})
	return errors.Join(err, refused)
}

// neverRead repeats a request on each port until the server hangs up.
func (s *attack) neverRead(ports ...string) {
	s.onEach(4, func(protocol string) {
		if !slices.Contains(ports, protocol) {
			return
		}
		c := s.dial(protocol)
		if err := neverRead(c, greetings[protocol], endless[protocol]); errors.Is(err, os.ErrDeadlineExceeded) {
			s.t.Errorf("%s: the server neither reads nor hangs up: %v", protocol, err)
		}
	})
}

// dripPause is the time between two bytes of a peer that sends as slowly as it can.
const dripPause = 50 * time.Millisecond

// everyWay opens n connections, or as many as the system allows, begins each with the next text for its protocol, and
// wants the server to hang up on all of them.
func (s *attack) everyWay(words map[string][]string, n int, do func(c net.Conn, begin string)) {
	var turn atomic.Int64
	s.onEach(s.files(n)/len(allPorts)+1, func(protocol string) {
		c := s.dial(protocol)
		begin := words[protocol][turn.Add(1)%int64(len(words[protocol]))]
		do(c, begin)
		s.wantHungUp(c, fmt.Sprintf("%s, %q", protocol, begin))
	})
}

// crowd offers functions and asks for jobs in one write, and returns when the server has read all of it.
func (s *attack) crowd(functions func(i int) string, count, grabs int) net.Conn {
	c := s.dial("periodic")
	b := hello(periodic.Worker)
	for i := range count {
		b = ask(b, 0, periodic.CanDo, periodic.AppendStr8String(nil, functions(i)))
	}
	for i := range grabs {
		b = ask(b, uint32(i+1), periodic.GrabJob, nil)
	}
	s.answered(c, b)
	return c
}

// lastID is the message id of the request that awaited waits for.
const lastID = 0xfffffffe

// answered sends b and a PING, and reads up to the PONG. The replies to DUMP and a long STATUS come after it: use
// awaited for them.
func (s *attack) answered(c net.Conn, b []byte) {
	s.awaited(c, ask(slices.Clip(b), lastID, periodic.Ping, nil)) // what was sent last may be on its way still
}

// told is answered on a new connection, which is made after b: a peer must greet at once.
func (s *attack) told(b []byte) {
	c := s.dial("periodic")
	defer c.Close()
	s.answered(c, b)
}

// awaited sends b, reads up to the end of the reply to lastID and returns its size.
func (s *attack) awaited(c net.Conn, b []byte) int {
	go func() { _, _ = c.Write(b) }() // an error shows in what is read
	var held []byte
	var reply periodic.Response
	for buffer := make([]byte, 64<<10); ; {
		n, err := c.Read(buffer)
		if err != nil {
			s.t.Errorf("no answer: %v", err)
			return 0
		}
		held = append(held, buffer[:n]...)
		rest := held
		for size := 1; size > 0; rest = rest[size:] {
			if size, err = periodic.NextResponse(rest, periodic.Plain, periodic.MaxPayload, &reply); err != nil {
				s.t.Errorf("no reply: %v", err)
				return 0
			}
			if size > 0 && reply.MsgID == lastID {
				return len(reply.Body)
			}
		}
		held = append(held[:0], rest...)
	}
}

// functionsEach is the number of functions of a worker, a twentieth of the server's limit. Each takes less than a
// kilobyte.
const functionsEach = 50_000

// dumpedEach is the number of jobs to DUMP, a twentieth of a million.
const dumpedEach = 50_000

// submits appends requests that submit n jobs.
func submits(b []byte, names string, count int) []byte {
	for i := range count {
		j := periodic.AppendJob(nil, &periodic.Job{Func: []byte("dumped"), Name: fmt.Append(nil, names, " ", i), Workload: []byte("of a job that is dumped")})
		b = ask(b, 1, periodic.SubmitJob, j)
	}
	return b
}

// hostiles are the attacks on the server.
var hostiles = []struct {
	name   string
	memory int  // that the server may take more, times the scale
	hasty  bool // the server does not wait long for what is unfinished: else it has to see itself that it is too much
	waits  bool // for seconds, while the server does nothing: others run meanwhile
	attack func(s *attack)
}{
	{name: "nobody, for comparison", attack: func(s *attack) { <-time.After(500 * time.Millisecond) }},
	{name: "floods of ZeroMQ", attack: (*attack).floods},
	{name: "very many projects, and their status", memory: 64 << 20, attack: (*attack).projects},
	{name: "unfinished beginnings on each port", hasty: true, waits: true, attack: func(s *attack) {
		s.everyWay(unfinished, 200*s.scale, func(c net.Conn, begin string) { _, _ = io.WriteString(c, begin) })
	}},
	{name: "a byte at a time on each port", hasty: true, waits: true, attack: func(s *attack) {
		s.everyWay(unfinished, 100*s.scale, func(c net.Conn, begin string) {
			_, err := io.WriteString(c, begin)
			for pause := time.NewTicker(dripPause); err == nil; <-pause.C {
				_, err = c.Write([]byte{'0'})
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.t.Errorf("%q, and then a byte at a time: the server does not hang up", begin)
			}
		})
	}},
	{name: "four gigabytes announced on each port", attack: func(s *attack) {
		s.everyWay(huge, 200*s.scale, func(c net.Conn, begin string) { _, _ = io.WriteString(c, begin) })
	}},
	{name: "four gigabytes on their way on each port", attack: func(s *attack) {
		s.everyWay(flowing, 20, func(c net.Conn, begin string) { _ = neverRead(c, begin, "0") })
	}},
	{name: "peers that never read", waits: true, attack: func(s *attack) {
		s.neverRead("periodic", "gloom-masters", "gloom-slaves", "dwork", "beanstalk", "faktory")
	}},
	{name: "peers of HTTP that never read", hasty: true, waits: true, attack: func(s *attack) { s.neverRead("kts46", "kts46-json", "http") }},
	{name: "idle connections", attack: func(s *attack) {
		n := s.files(500 * s.scale)
		s.t.Logf("%d idle connections", n)
		var open []net.Conn
		for i := range n {
			protocol := allPorts[i%len(allPorts)]
			c := s.dial(protocol)
			open = append(open, c)
			_, _ = io.WriteString(c, greetings[protocol]+endless[protocol])
			if _, err := c.Read(make([]byte, 1)); err != nil {
				s.t.Fatal(protocol, err)
			}
		}
		for _, c := range open {
			c.Close()
		}
	}},
	{name: "connections to --http that say nothing", attack: (*attack).silent},
	{name: "shapes of HTTP", hasty: true, waits: true, attack: (*attack).shapes},
	{name: "connecting and leaving", attack: func(s *attack) {
		for i := range 1000 * s.scale {
			s.dial(allPorts[i%len(allPorts)]).Close()
		}
		s.onEach(1, func(protocol string) { // behind them all
			c := s.dial(protocol)
			_, _ = c.Write([]byte(strings.Repeat("garbage\n", 1<<10)))
			s.wantHungUp(c, protocol)
		})
	}},
	{name: "one function with very many slots", attack: func(s *attack) {
		for range 3 * s.scale { // each up to the limit of a connection
			defer s.crowd(func(int) string { return "slots" }, 1, 16<<10).Close()
		}
		c := s.dial("periodic")
		defer c.Close()
		b := hello(periodic.Client)
		for i := range 1000 {
			b = ask(b, 1, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("slots"), Name: fmt.Append(nil, i)}))
		}
		s.answered(c, b)
		s.stands("slots", 1000, 1000)
	}},
	{name: "very many functions, and their STATUS", memory: functionsEach << 10, attack: func(s *attack) {
		for n := range s.scale {
			defer s.crowd(func(i int) string { return fmt.Sprintf("function %0100d", n*functionsEach+i) }, functionsEach, 0).Close()
		}
		for range 4 {
			c := s.dial("periodic")
			defer c.Close()
			if size := s.awaited(c, ask(hello(periodic.Client), lastID, periodic.Status, nil)); size < functionsEach*s.scale*100 {
				s.t.Errorf("a STATUS of %d bytes", size)
			}
		}
	}},
	{name: "names that collide in common hashes", attack: func(s *attack) {
		b := hello(periodic.Client)
		bits := 20 // a million: what is quadratic in them takes longer than anybody waits
		if testing.Short() {
			bits = 16
		}
		for i := range 1 << bits {
			var name strings.Builder // all the same to h*31 + c
			for bit := range bits {
				name.WriteString([]string{"Aa", "BB"}[i>>bit&1])
			}
			b = ask(b, 1, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("hash"), Name: []byte(name.String())}))
		}
		s.told(b)
		s.stands("hash", 1<<bits, 0)
	}},
	{name: "DUMPs of many jobs while more are submitted", memory: dumpedEach << 9, attack: func(s *attack) {
		s.told(submits(hello(periodic.Client), "first", dumpedEach*s.scale))
		var all sync.WaitGroup
		for n := range 3 {
			all.Go(func() {
				d := s.dial("periodic")
				defer d.Close()
				if size := s.awaited(d, ask(hello(periodic.Client), lastID, periodic.Dump, nil)); size < dumpedEach*s.scale*20 {
					s.t.Errorf("a DUMP of %d bytes", size)
				}
			})
			all.Go(func() { s.told(submits(hello(periodic.Client), fmt.Sprint("more ", n), dumpedEach/10)) })
		}
		all.Wait()
	}},
	{name: "empty names and the longest", attack: func(s *attack) {
		ctx, long := patient(s.t), strings.Repeat("\xff", periodic.MaxStr8)
		c := worked(client.Dial(ctx, s.socket, client.Options{}))(s.t)
		defer c.Close()
		w := worked(client.DialWorker(ctx, s.socket, client.Options{}))(s.t)
		defer w.Close()
		want := map[[2]string]bool{}
		for _, function := range []string{"", long} {
			must(s.t, w.CanDo(ctx, function))
			for _, name := range []string{"", long} {
				must(s.t, c.Submit(ctx, &client.Job{Func: function, Name: name}))
				want[[2]string{function, name}] = true
			}
		}
		for len(want) > 0 {
			a := worked(w.Grab(ctx))(s.t)
			k := [2]string{a.Job.Func, a.Job.Name}
			if !want[k] {
				s.t.Fatalf("function %.9q, name %.9q was not submitted, or is done", a.Job.Func, a.Job.Name)
			}
			delete(want, k)
			must(s.t, w.Done(ctx, a, nil))
		}
	}},
	{name: "malformed jobs, slow patterns and many FETCHes of Faktory", memory: 8 << 20, attack: (*attack).faktory},
	{name: "SIGSTOP for a while", attack: func(s *attack) {
		s.rest = true
		s.server.signal(syscall.SIGSTOP)
		<-time.After(500 * time.Millisecond * time.Duration(s.scale))
		s.server.signal(syscall.SIGCONT)
	}},
	{name: "one result for very many requests", attack: (*attack).awaits},
	{name: "a large broadcast to very many workers", attack: (*attack).broadcast},
	{name: "a large task for very many who do not read", attack: (*attack).lookups},
	{name: "a task told again and again to wait for what very many wait for", attack: (*attack).joins},
	{name: "a task that waits for very many, looked up again and again", attack: (*attack).joined},
	{name: "long chains that are to change places", attack: (*attack).reorders},
	{name: "a call that grows as it is read", attack: (*attack).recoded},
	{name: "types of megabytes, one after the other", attack: (*attack).types},
	{name: "a worker of very many functions asks and asks", memory: 64 << 20, attack: (*attack).asksMuch},
	{name: "very many workers ask and ask for a job that none can have", attack: (*attack).unfit},
	{name: "large requests without their ends", attack: (*attack).fronts},
	{name: "STATUS beside peers that never read theirs", attack: (*attack).statuses},
	{name: "requests that the API refuses", attack: (*attack).refused},
	{name: "workers over HTTP that hang up while jobs come", attack: (*attack).hangUps},
	{name: "pages of the API that are not read", attack: (*attack).unread},
	{name: "large bodies of the API without their ends", attack: (*attack).unended},
	{name: "more workers over HTTP than the API has places for", attack: (*attack).longPolls},
	{name: "very many queues of the HTTP API", memory: queuesEach << 11, attack: (*attack).queues},
	{name: "jobs of the largest size to the HTTP API", memory: 128 << 20, attack: (*attack).largeJobs},
	{name: "garbage on each port", attack: func(s *attack) {
		s.onEach(10*s.scale, func(protocol string) {
			c := s.dial(protocol)
			_, _ = c.Write([]byte(strings.Repeat("garbage\n", 1<<10)))
			s.wantHungUp(c, protocol)
		})
	}},
}
