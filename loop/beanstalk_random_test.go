package loop

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// beanstalkSequences is how many random sequences TestBeanstalkRandom plays.
var beanstalkSequences = flag.Int("beanstalk-sequences", 30, "random sequences of commands that are played on the installed beanstalkd and on Treadle")

const (
	randomClients  = 3
	randomRequests = 120
)

// randomRequest returns a request that has one reply at once. last is the largest id.
func randomRequest(r *rand.Rand, last int) string {
	tube := []string{"default", "a", "b"}[r.IntN(3)]
	id := 1 + r.IntN(max(last, 1)+1) // one more than there are
	if r.IntN(2) == 0 {
		id = max(1, last-r.IntN(4))
	}
	pri := []uint32{0, 5, 5, 1023, 1024, 1<<32 - 1}[r.IntN(6)]
	delay := []int{0, 0, 0, 100, 1000}[r.IntN(5)]
	switch r.IntN(24) {
	case 0, 1, 2, 3, 4:
		body := strings.Repeat("x", r.IntN(4))
		return fmt.Sprintf("put %d %d %d %d\r\n%s", pri, delay, r.IntN(2)*100+100, len(body), body)
	case 5, 6, 7, 8:
		return "reserve-with-timeout 0"
	case 9:
		return fmt.Sprintf("reserve-job %d", id)
	case 10:
		return fmt.Sprintf("delete %d", id)
	case 11:
		return fmt.Sprintf("release %d %d %d", id, pri, delay)
	case 12:
		return fmt.Sprintf("bury %d %d", id, pri)
	case 13:
		return fmt.Sprintf("kick %d", r.IntN(4))
	case 14:
		return fmt.Sprintf("kick-job %d", id)
	case 15:
		return fmt.Sprintf("touch %d", id)
	case 16:
		return []string{"peek-ready", "peek-delayed", "peek-buried", fmt.Sprintf("peek %d", id)}[r.IntN(4)]
	case 17:
		return "use " + tube
	case 18:
		return "watch " + tube
	case 19:
		return "ignore " + tube
	case 20:
		return "stats-tube " + tube
	case 21:
		return fmt.Sprintf("stats-job %d", id)
	case 22:
		return []string{"stats", "list-tubes", "list-tube-used", "list-tubes-watched"}[r.IntN(4)]
	}
	return []string{"pause-tube " + tube + " 1000", "put", "delete x", "use", "watch -a", "kick", "stats-job", "release 1 2", "nothing", ""}[r.IntN(10)]
}

var (
	randomVaries = regexp.MustCompile(`\n(age|time-left|pause-time-left|cmd-stats): [0-9]+`)
	randomTubes  = regexp.MustCompile(`(?s)---\n(- .*\n)\r\n$`)
)

// comparable writes a reply without its times, and the lines of a list-tubes in order.
func comparable(request, reply string) string {
	text := strings.TrimPrefix(beanstalkLine("", []byte(reply)), " < ")
	if strings.HasPrefix(reply, "OK ") {
		if text = beanstalkLength.ReplaceAllString(reply, "OK N\r\n"); request == "stats" {
			text = beanstalkVaries.ReplaceAllString(text, "\n$1: V")
		}
		text = randomVaries.ReplaceAllString(text, "\n$1: V")
	}
	if m := randomTubes.FindStringSubmatch(text); m != nil && request == "list-tubes" {
		lines := strings.SplitAfter(m[1], "\n")
		slices.Sort(lines)
		text = strings.Join(lines, "")
	}
	return text
}

// askBeanstalkd sends a request to a server on a socket and reads its reply.
func askBeanstalkd(t *testing.T, c *beanstalkConn, in *bufio.Reader, request string) string {
	t.Helper()
	c.sendAll([]byte(request + "\r\n"))
	_ = c.SetReadDeadline(time.Now().Add(patience))
	reply, err := in.ReadString('\n')
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	words := strings.Fields(reply)
	if !slices.Contains([]string{"OK", "RESERVED", "FOUND"}, words[0]) {
		return reply
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		t.Fatalf("%q is answered %q", request, reply)
	}
	body := make([]byte, size+2)
	if _, err := io.ReadFull(in, body); err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return reply + string(body)
}

// TestBeanstalkRandom plays random sequences of requests of several connections on the installed beanstalkd and on
// Treadle, and compares every reply. -beanstalk-sequences plays more of them.
func TestBeanstalkRandom(t *testing.T) {
	t.Parallel()
	requests, words := 0, map[string]int{}
	for seed := range uint64(*beanstalkSequences) {
		requests += playRandom(t, seed, words)
	}
	t.Logf("%d requests in %d sequences are answered alike: %v", requests, *beanstalkSequences, words)
	for _, word := range []string{"INSERTED", "RESERVED", "TIMED_OUT", "DELETED", "RELEASED", "BURIED", "TOUCHED", "KICKED", "FOUND", "NOT_FOUND", "USING", "WATCHING", "NOT_IGNORED", "OK", "PAUSED", "BAD_FORMAT", "UNKNOWN_COMMAND"} {
		if words[word] == 0 {
			t.Errorf("no request is answered %s", word)
		}
	}
}

// randomClient is one client at both servers.
type randomClient struct {
	real   *beanstalkConn
	in     *bufio.Reader
	memory *beanstalkMemoryPeer
}

func playRandom(t *testing.T, seed uint64, words map[string]int) (requests int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	theirs, ours := startBeanstalkd(t), newBeanstalkMemory(t, 1, whole)
	dial := func() *randomClient {
		real := theirs.dial().(*beanstalkConn)
		c := &randomClient{real, bufio.NewReader(real), ours.dial().(*beanstalkMemoryPeer)}
		askBeanstalkd(t, c.real, c.in, "list-tube-used") // so that beanstalkd has accepted it
		c.memory.sendAll([]byte("list-tube-used\r\n"))
		c.memory.read = nil
		return c
	}
	var clients []*randomClient
	for range randomClients {
		clients = append(clients, dial())
	}
	last, played := 0, []string(nil)
	for range randomRequests {
		i := r.IntN(len(clients))
		c := clients[i]
		if r.IntN(40) == 0 {
			c.leave(t, clients[(i+1)%len(clients)])
			clients[i] = dial()
			played = append(played, fmt.Sprintf("%d closes", i))
			continue
		}
		request := randomRequest(r, last)
		played = append(played, fmt.Sprintf("%d > %q", i, request))
		want := askBeanstalkd(t, c.real, c.in, request)
		c.memory.sendAll([]byte(request + "\r\n"))
		ours.pass(time.Millisecond) // no two jobs are due in one millisecond
		reply := c.memory.read
		c.memory.read = nil
		if w, g := comparable(request, want), comparable(request, string(reply)); w != g {
			t.Fatalf("sequence %d, after the requests below:\nwant %q\ngot  %q\n%s", seed, w, g, strings.Join(played, "\n"))
		}
		word := strings.Fields(want)[0]
		if words[word]++; word == "INSERTED" {
			last++
		}
		requests++
	}
	for _, c := range clients {
		c.real.leave(false)
	}
	return requests
}

// leave closes the client's connections. It returns when beanstalkd has seen that, which other asks.
func (c *randomClient) leave(t *testing.T, other *randomClient) {
	t.Helper()
	c.memory.leave(false)
	c.real.leave(false)
	for deadline := time.Now().Add(patience); !strings.Contains(askBeanstalkd(t, other.real, other.in, "stats"), fmt.Sprintf("\ncurrent-connections: %d\n", randomClients-1)); {
		if time.Now().After(deadline) {
			t.Fatal("beanstalkd does not see that a connection has ended")
		}
	}
}
