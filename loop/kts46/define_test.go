package kts46

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestKts46WideDefinition: a definition with very many names, or with one repeated, is parsed like any other of its
// length.
func TestKts46WideDefinition(t *testing.T) {
	good := "simulationParameters: {duration: 8, stepDuration: 2, batchLength: 3}\n"
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, "k%d:\n", i)
	}
	for _, more := range []string{many.String(), strings.Repeat("a:\n", 200_000)} {
		read := make(chan batchParams, 1)
		go func() {
			n, err := parseDefinition([]byte(good + more))
			if err != nil {
				t.Error(err)
			}
			read <- n
		}()
		select {
		case j := <-read:
			if j.total != 4 || j.batch != 3 {
				t.Errorf("%d steps in batches of %d", j.total, j.batch)
			}
		case <-time.After(patience):
			t.Fatal("the definition is still being read")
		}
	}
}

// TestKts46DefinitionKeepsNobody: parsing a long definition delays other long definitions only.
func TestKts46DefinitionKeepsNobody(t *testing.T) {
	r := newTestHub(t, Options{})
	const good = "simulationParameters: {duration: 8, stepDuration: 2, batchLength: 3}\n"
	if _, err := r.xml("createProject", "p"); err != nil {
		t.Fatal(err)
	}
	r.defining.Lock() // one is being parsed
	added, served := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.xml("addJob", "p", "long", good+strings.Repeat("#", shortDefinition))
		added <- err
	}()
	go func() {
		for r.stats.requests["addJob"].Load() == 0 {
			runtime.Gosched()
		}
		for i := range 1000 {
			if _, err := r.xml("addJob", "p", fmt.Sprint(i), good); err != nil {
				served <- err
			}
		}
		served <- nil
	}()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-added:
		t.Error("two long definitions are read at once")
	case <-time.After(patience):
		t.Error("others wait for a definition")
	}
	r.defining.Unlock()
	if err := <-added; err != nil {
		t.Error(err)
	}
	if status, err := r.xml("getJobStatus", "p", "long"); err != nil || status != "p.long: 0 (0/4)." {
		t.Error(status, err)
	}
}

// TestKts46Merged: the numbers are found in merged mappings, the mapping's own first, and each mapping is visited once.
func TestKts46Merged(t *testing.T) {
	f := func(definition string, total, batch int64) {
		t.Helper()
		j, err := parseDefinition([]byte(definition))
		if (err != nil) != (total == 0) || j.total != total || j.batch != batch {
			t.Errorf("%.80q: %d steps in batches of %d, %v; want %d, %d", definition, j.total, j.batch, err, total, batch)
		}
	}
	base := "base: &base {duration: 8, stepDuration: 2, batchLength: 3}\nother: &other {duration: 9, batchLength: 1}\n"
	f(base+"simulationParameters: *base\n", 4, 3)
	f(base+"simulationParameters:\n  <<: *base\n", 4, 3)
	f(base+"simulationParameters:\n  <<: *base\n  batchLength: 4\n", 4, 4)
	f(base+"simulationParameters:\n  <<: [*other, *base]\n", 5, 1)
	f(base+"simulationParameters:\n  <<: *other\n", 0, 0)
	f(base+"<<: {simulationParameters: *base}\n", 4, 3)
	f("simulationParameters: &a\n  <<: *a\n  duration: 8\n", 0, 0)
	var bomb strings.Builder
	bomb.WriteString("m0: &m0 {a: 1}\n")
	for i := range 60 {
		fmt.Fprintf(&bomb, "m%d: &m%d\n  <<: [*m%d, *m%d]\n", i+1, i+1, i, i)
	}
	f(bomb.String()+"simulationParameters:\n  <<: *m60\n", 0, 0)
	f(bomb.String()+"simulationParameters:\n  <<: *m60\n  duration: 8\n  stepDuration: 2\n  batchLength: 3\n", 4, 3)
}
