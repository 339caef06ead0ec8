package dwork

import (
	"io"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"treadle/codec/dwork/dworkpb"
	"treadle/loop/protocol"
	"treadle/sched"
)

// TestMain: no test may leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testHub is a hub without sockets, and its host: a server without a journal and other protocols, whose clock the test
// sets.
type testHub struct {
	protocol.Host // the methods that the hub never calls
	*Protocol
	t     *testing.T
	clock sched.Time
	all   *sched.Scheduler
}

func newTestHub(t *testing.T, o Options) *testHub {
	t.Helper()
	r := &testHub{t: t, clock: sched.Time{Wall: 1_000_000, WallMicros: 1_000_000_000}}
	r.all = sched.New(sched.Options{Shards: 4, Alarm: func() {}, Rules: protocol.TableOf(Spaces()...).Rules()})
	if o.MaxSteal == 0 {
		o.MaxSteal = 65536
	}
	r.Protocol = New(r, o)
	return r
}

// Sched implements protocol.Host, as the methods below do.
func (r *testHub) Sched() *sched.Scheduler               { return r.all }
func (r *testHub) Now() sched.Time                       { return r.clock }
func (r *testHub) Log() *slog.Logger                     { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
func (r *testHub) LogLimited(slog.Level, string, ...any) {}
func (r *testHub) CountRefusal(string, protocol.Reason)  {}
func (r *testHub) CheckCapacity() error                  { return nil }
func (r *testHub) CommitGroup([]byte) (uint64, bool)     { return 0, false }
func (r *testHub) Committed() uint64                     { return 0 }
func (r *testHub) Flush(int)                             {}
func (r *testHub) FlushLater()                           {}
func (r *testHub) NewSink() protocol.Sink                { return nobody{} }
func (r *testHub) Limits() protocol.Limits               { return protocol.Limits{MaxUnsent: 1 << 30} }
func (r *testHub) Listen(string, string, string) (net.Listener, error) {
	return net.Listen("tcp", "127.0.0.1:0")
}

// nobody is a sink without sessions.
type nobody struct{}

func (nobody) Deliver(*sched.Delivery) {}
func (nobody) Wake()                   {}

// pass advances the clock.
func (r *testHub) pass(d time.Duration) {
	r.clock.Wall += d.Milliseconds()
	r.clock.Mono += d.Milliseconds()
	r.clock.WallMicros += d.Microseconds()
	for next := r.all.Tick(r.clock, r.sink); next.Mono <= r.clock.Mono; {
		next = r.all.Tick(r.clock, r.sink)
	}
}

// reply returns the reply to a request.
func (r *testHub) reply(request []byte) (reply string) {
	r.Ask(request, func(b []byte) { reply = string(b) })
	return reply
}

// ask sends a request in protobuf's text form and returns the reply in it.
func (r *testHub) ask(request string) string {
	r.t.Helper()
	var m dworkpb.QueryMsg
	if err := prototext.Unmarshal([]byte(request), &m); err != nil {
		r.t.Fatalf("%s: %v", request, err)
	}
	payload, err := proto.MarshalOptions{AllowPartial: true}.Marshal(&m)
	if err != nil {
		r.t.Fatal(err)
	}
	reply := r.reply(payload)
	var back dworkpb.QueryMsg
	if err := proto.Unmarshal([]byte(reply), &back); err != nil {
		r.t.Fatalf("%s: the reply %x: %v", request, reply, err)
	}
	// The text form has random spaces on purpose.
	return strings.TrimSpace(blanks.ReplaceAllString(prototext.MarshalOptions{}.Format(&back), " "))
}

var blanks = regexp.MustCompile(` +`)

// taskNames returns a reply's type and the names of its tasks.
func taskNames(t *testing.T, reply string) string {
	t.Helper()
	var m dworkpb.QueryMsg
	if err := prototext.Unmarshal([]byte(reply), &m); err != nil {
		t.Fatal(err)
	}
	names := []string{m.GetType().String()}
	for _, task := range m.GetTask() {
		names = append(names, task.GetName())
	}
	return strings.Join(names, " ")
}
