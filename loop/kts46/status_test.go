package kts46

import (
	"fmt"
	"strings"
	"testing"

	codec "treadle/codec/kts46"
)

// flags returns the true statistics flags of a job in getServerStatus, in their order on the wire.
func (r *testHub) flags(job string) string {
	r.t.Helper()
	all, _ := r.does("getServerStatus").([]any)
	for _, e := range all {
		s := e.(codec.Struct)
		if s.Get("name") != job {
			continue
		}
		var on []string
		for _, flag := range []string{"basicStatistics", "idleTimes", "throughput", "fullStatistics"} {
			if s.Get(flag) == true {
				on = append(on, flag)
			}
		}
		return strings.Join(on, " ")
	}
	r.t.Fatalf("getServerStatus does not show %s", job)
	return ""
}

// TestKts46Flags: the statistics flags that the original web interface shows follow the tasks of either version. An
// abort does not clear them.
func TestKts46Flags(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	r.does("addJob", "p", "one", definition(1, 1, 1))
	r.does("addJob", "p", "two", definition(1, 1, 1))
	want := func(job, flags string) {
		t.Helper()
		if got := r.flags(job); got != flags {
			t.Errorf("the flags of %s are %q, want %q", job, got, flags)
		}
	}
	want("one", "")
	r.does("runJob", "p", "one")
	r.report(r.wantJob("w", "one simulation"), "finished")
	want("one", "")
	r.report(r.wantJob("w", "one statistics"), "finished")
	want("one", "basicStatistics idleTimes throughput fullStatistics")

	do := func(kind string) {
		t.Helper()
		sig := r.sigOf(r.json("getTask", "v", []string{kind}))
		r.wants(quoted, "taskFinished", "v", r.sigOf(r.json("acceptTask", "v", sig)))
	}
	r.wants(quoted, "addTask", "p", "two")
	want("two", "")
	do("simulation")
	want("two", "")
	do("idleTimes")
	want("two", "idleTimes")
	r.wants("2", "abortTask", "p", "two")
	want("two", "idleTimes")
	r.wants(quoted, "addTask", "p", "two")
	do("basicStatistics")
	want("two", "basicStatistics idleTimes")
	do("throughput")
	want("two", "basicStatistics idleTimes throughput fullStatistics")
}

// TestKts46JobStatistics: getJobStatistics returns the document of a new job, since Treadle does not have the results.
// An unknown project or job has none.
func TestKts46JobStatistics(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(0, 1, 1))
	want := func(statistics string, args ...any) {
		t.Helper()
		if got := fmt.Sprint(r.does("getJobStatistics", args...)); got != statistics {
			t.Errorf("getJobStatistics%q: %s, want %s", args, got, statistics)
		}
	}
	const empty = "{average <nil>} {stdeviation <nil>} {averageSpeed <nil>} {idleTimes [{values <nil>}]} {thoughput []} {throughput []}"
	want("["+empty+" {finished false}]", "p", "a", false)
	r.does("runJob", "p", "a")
	r.report(r.wantJob("w", "a statistics"), "finished")
	want("["+empty+" {finished true}]", "p", "a", false)
	want("[]", "p", "b", false)
	want("[]", "q", "a", true)
	r.faults("takes exactly 4 arguments (3 given)", "getJobStatistics", "p", "a")
}
