package loop

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// format3 is a disk with a data directory that a server of format 3 left when it was killed.
func format3(t *testing.T) *disk {
	t.Helper()
	packed, err := os.Open("journal/testdata/format3.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	m := vfs.NewMem()
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return newDiskOn(m)
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(h.Name, "killed/")
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		name = path.Join("data", name)
		b, err := io.ReadAll(r)
		if err == nil {
			err = m.MkdirAll(path.Dir(name), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConverted: a server starts on a directory of format 3 with its jobs and settings and without
// the queue that was dropped. Tasks keep their holders and predecessors; those of the holder that
// was leaving are ready.
func TestConverted(t *testing.T) {
	t.Parallel()
	r := format3(t).on(t, dworkOn)
	c, w := r.greet(periodic.Client), r.greet(periodic.Worker)
	c.ask(1, periodic.ConfigGet, str8("timeout"), append([]byte{byte(periodic.Config)}, 0, 0, 0, 77)...)
	w.send(request(1, periodic.CanDo, str8("echo")), request(2, periodic.GrabJob), request(3, periodic.GrabJob))
	for _, want := range []string{"now \xff\xfebytes", "nul\x01name {\"n\":1}"} {
		if _, j := assigned(t, w.next()); string(j.Name)+" "+string(j.Workload) != want {
			t.Errorf("%q with %q, want %q", j.Name, j.Workload, want)
		}
	}
	c.send(request(3, periodic.Status))
	if got := string(c.next().Body); !strings.Contains(got, "größe,0,1,0,") || strings.Contains(got, "dropped") {
		t.Errorf("the status is %q", got)
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h := r.hub()
	if text, ready, err := h.Status(ctx); err != nil || text != "dhub: 8 active tasks, 4 ready." || ready != 4 {
		t.Errorf("%s, %v", text, err)
	}
	info, err := h.Lookup(ctx, "salad")
	if err != nil || info.Location != "cook" || info.Origin != "kitchen" || len(info.Log) != 2 {
		t.Errorf("salad is %+v, %v", info, err)
	}
	info, err = h.Lookup(ctx, "plate")
	slices.Sort(info.After)
	if err != nil || !slices.Equal(info.After, []string{"fish", "late", "salad"}) {
		t.Errorf("plate waits for %q, %v", info.After, err)
	}
	if missing, err := h.Complete(ctx, "cook", tasksOf("salad")...); err != nil || len(missing) > 0 {
		t.Errorf("%v, %v", missing, err)
	}
	if got, err := h.Steal(ctx, "maid", 9); err != nil || !slices.Equal(namesOf(got), []string{"soup", "late", "wash0", "wash1"}) {
		t.Errorf("the maid steals %q, %v", namesOf(got), err)
	}
}

// TestKindsOfJournal: the kinds of the scheduler and the protocols are those of the journal.
func TestKindsOfJournal(t *testing.T) {
	t.Parallel()
	for k, want := range []string{sched.KindJob: "job", sched.KindQueue: "queue", sched.KindDropped: "dropped", sched.KindEdge: "edge", sched.KindExit: "exit", sched.KindCron: "cron"} {
		if got := recordKinds[k].String(); got != want || recordKind(recordKinds[k]) != sched.Kind(k) {
			t.Errorf("kind %d is %q in the journal, want %q", k, got, want)
		}
	}
	for k := protocol.KindProject; k <= protocol.KindProgress; k++ {
		if got, want := documentKinds[k].String(), k.String(); got != want || documentKind(documentKinds[k]) != k {
			t.Errorf("kind %d is %q in the journal, want %q", k, got, want)
		}
	}
}
