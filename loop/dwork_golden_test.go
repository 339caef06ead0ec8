package loop

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"treadle/codec/dwork/dworkpb"
	"treadle/sched"
)

// dworkRig is a hub without sockets, under a clock that the test sets.
type dworkRig struct {
	*dworkHub
	t     *testing.T
	clock sched.Time
}

func newDworkRig(t *testing.T, o Options) *dworkRig {
	t.Helper()
	o.Data, o.Shards, o.Loops = NoData, 4, 1
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &dworkRig{t: t, clock: sched.Time{Wall: 1_000_000, Micros: 1_000_000_000}}
	s.clock = func() sched.Time { return r.clock }
	r.dworkHub = newDworkHub(s)
	return r
}

// pass lets time go by.
func (r *dworkRig) pass(d time.Duration) {
	r.clock.Wall += d.Milliseconds()
	r.clock.Mono += d.Milliseconds()
	r.clock.Micros += d.Microseconds()
	r.now = r.clock
	for next := r.server.sched.Tick(r.now, &r.sink); next.Mono <= r.now.Mono; {
		next = r.server.sched.Tick(r.now, &r.sink)
	}
}

// ask sends a request in protobuf's text form and returns the reply in it.
func (r *dworkRig) ask(request string) string {
	r.t.Helper()
	var m dworkpb.QueryMsg
	if err := prototext.Unmarshal([]byte(request), &m); err != nil {
		r.t.Fatalf("%s: %v", request, err)
	}
	payload, err := proto.MarshalOptions{AllowPartial: true}.Marshal(&m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.now = r.clock
	reply, _, _ := r.answer(nil, r.read(payload))
	var back dworkpb.QueryMsg
	if err := proto.Unmarshal(reply, &back); err != nil {
		r.t.Fatalf("%s: the reply %x: %v", request, reply, err)
	}
	// The text form has spaces here and there, at random on purpose.
	return strings.TrimSpace(blanks.ReplaceAllString(prototext.MarshalOptions{}.Format(&back), " "))
}

var blanks = regexp.MustCompile(` +`)

// TestDworkGolden plays the conversations of testdata/dwork. Each line that begins with >
// is a request, the one behind it the reply; "pass 5s" lets time go by. A capture of the
// reference hub is among them; where Treadle answers otherwise, its first line says so.
func TestDworkGolden(t *testing.T) {
	files, err := os.ReadDir("testdata/dwork")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d conversations: %v", len(files), err)
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			path := "testdata/dwork/" + f.Name()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{}
			if strings.Contains(f.Name(), "settings") {
				o.Dwork = DworkOptions{Idle: DworkNotFound, Complete: DworkHolder, MaxSteal: 2, Remember: time.Minute}
			}
			rig := newDworkRig(t, o)
			rig.server.sched.SetRemember(o.Dwork.Remember.Milliseconds())
			got, asked := playDwork(rig, string(text))
			if asked < 5 {
				t.Fatalf("%d requests", asked)
			}
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("got\n%s\nwant\n%s", got, text)
			}
		})
	}
}

func playDwork(rig *dworkRig, script string) (got string, asked int) {
	var out strings.Builder
	for line := range strings.Lines(script) {
		side, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch side {
		case "<":
		case ">":
			out.WriteString(line + "< " + rig.ask(rest) + "\n")
			asked++
			rig.clock.Micros++
		case "pass":
			d, err := time.ParseDuration(rest)
			if err != nil {
				rig.t.Fatal(err)
			}
			rig.pass(d)
			out.WriteString(line)
		default:
			out.WriteString(line)
		}
	}
	return out.String(), asked
}
