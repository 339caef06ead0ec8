package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "treadle/"
)

// topLevel is all the module's root may hold besides dot-files; bin and
// treadle-data are made by building and running and are not committed.
var topLevel = []string{
	"loop", "codec", "sched", "cmd", "bench", "fuzz", "go.mod", "go.sum", "Makefile", "README.md", "LICENSE", "bin", "treadle-data",
}

// pure are the packages without I/O, clock, randomness and logging. pureBans are the imports, with everything below
// them, and the functions that would bring these in.
var (
	pure     = []string{"sched", "codec"}
	pureBans = []string{"net", "os", "io/fs", "io/ioutil", "syscall", "log", "math/rand", "crypto/rand", "golang.org/x/sys", "github.com/panjf2000/gnet"}
	clock    = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
)

// onlyIn maps a library to the packages that may import it.
var onlyIn = []struct {
	library string
	places  []string
}{
	{"github.com/panjf2000/gnet", []string{"loop/engine.go"}},
	{"github.com/go-zeromq", []string{"loop/dwork/zmq"}},
	{"go.mongodb.org/mongo-driver", []string{"loop/disbatch", "loop/kts46/store"}}, // bson, for documents
	{"go.mongodb.org/mongo-driver/mongo", []string{"loop/disbatch/store", "loop/disbatch/sitetest", "loop/kts46/store"}},
	{"github.com/yuin/goldmark", []string{"loop/page"}},
	{"go.etcd.io/raft", []string{"loop/cluster"}},
	{"unsafe", []string{"codec/dwork/dworkpb/dwork.pb.go"}}, // generated so
}

// siteDoubles replace the systems of a Disbatch site, which tests cannot have. No package of the program imports
// testOnly.
var (
	siteDoubles = []string{"loop/disbatch/mongotest", "loop/disbatch/sitetest"}
	testOnly    = append([]string{"codec/jsontext/jsontest", "loop/certs/certtest"}, siteDoubles...)
)

// apart are the packages that may import these packages of the module and no others.
var apart = map[string][]string{
	"loop/disbatch/config":    siteDoubles,
	"loop/disbatch":           {"loop/disbatch/config", "loop/disbatch/node", "loop/disbatch/web", "loop/protocol", "loop/web", "sched"},
	"loop/disbatch/store":     append([]string{"loop/disbatch/config"}, siteDoubles...),
	"loop/disbatch/node":      append([]string{"loop/disbatch/config", "loop/disbatch/store", "loop/web"}, siteDoubles...),
	"loop/disbatch/web":       append([]string{"codec/admin", "loop/budget", "loop/disbatch/config", "loop/disbatch/store", "loop/web"}, siteDoubles...),
	"loop/disbatch/sitetest":  {"loop/disbatch/config", "loop/disbatch/mongotest", "loop/disbatch/store"},
	"loop/disbatch/mongotest": {},
	"loop/certs":              {},
	"loop/certs/certtest":     {"loop/certs"},
	"loop/cluster":            {"loop/certs", "loop/journal", "loop/splice"},
	"loop/protocol":           {"loop/certs", "loop/web", "sched"},
	"loop/splice":             {},
	"loop/setting":            {"loop/journal", "loop/protocol", "sched"},
	"loop/page":               {"loop/protocol", "loop/web", "codec/admin"},
	"loop/periodic":           {"loop/protocol", "loop/web", "codec/periodic", "sched", "sched/heap"},
	"loop/dwork":              {"loop/dwork/zmq", "loop/protocol", "loop/web", "codec/dwork", "codec/dwork/dworkpb", "codec/jsontext", "sched"}, // codec/dwork/dworkpb: for tests
	"loop/dwork/zmq":          {"loop/budget"},
	"loop/client":             {"loop/certs", "loop/dwork/zmq", "codec/admin", "codec/periodic", "codec/gloom", "codec/dwork", "codec/faktory", "codec/jsontext", "codec/kts46"},
	"loop/gloom":              {"loop/protocol", "loop/web", "codec/gloom", "codec/jsontext", "sched"},
	"loop/kts46":              {"loop/budget", "loop/protocol", "loop/web", "loop/kts46/store", "codec/kts46", "sched"},
}

// apartTests are the packages whose tests may import these, too: a host that restarts needs a journal, a client a
// server.
var apartTests = map[string][]string{
	"loop/kts46":       {"loop/journal", "loop/setting"},
	"loop/certs":       {"loop/certs/certtest"},
	"loop/client":      {"loop"},
	"loop/splice":      {"loop/certs/certtest"},
	"loop/setting":     {"loop"},
	"loop/kts46/store": {"loop", "loop/disbatch/mongotest"},
}

var badNames = []string{"util", "utils", "common", "types", "helpers", "interfaces"}

// eachGoFile calls check for every Go file of the module, by its path in the module, and fails the test with the faults
// that it returns. Modules of their own are tools, which do not ship.
func eachGoFile(t *testing.T, check func(file, source string) (faults []string)) {
	files := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if hidden(d.Name()) || d.Name() == "testdata" || file == "bin" || file == "treadle-data" {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && file != "." {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(file) != ".go" {
			return nil
		}
		files++
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, fault := range check(filepath.ToSlash(file), string(source)) {
			t.Error(fault)
		}
		return nil
	})
	if err != nil || files < 400 {
		t.Fatalf("%d files read, %v", files, err)
	}
}

// TestLayers checks the imports of every Go file of the module against the rules of the house.
func TestLayers(t *testing.T) { eachGoFile(t, layerFaults) }

func TestTopLevel(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !hidden(e.Name()) && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("%s has no place at the top level: %v", e.Name(), topLevel)
		}
	}
}

func hidden(name string) bool { return len(name) > 2 && name[0] == '.' && name != ".." }

// layerFaults returns the broken rules of one file, named by its path in the module.
func layerFaults(file, source string) (faults []string) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	fault := func(at token.Pos, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s: %s", set.Position(at), fmt.Sprintf(format, args...)))
	}
	if name := strings.TrimSuffix(parsed.Name.Name, "_test"); slices.Contains(badNames, name) {
		fault(parsed.Name.Pos(), "a package called %s says nothing", name)
	}
	pkg := path.Dir(file)
	strict := within(pkg, pure...) && !strings.HasSuffix(file, "_test.go")
	for _, i := range parsed.Imports {
		target, _ := strconv.Unquote(i.Path.Value)
		inner, ours := strings.CutPrefix(target, module)
		switch {
		case ours && within(pkg, "cmd") && within(inner, "codec") && strings.HasSuffix(file, "_test.go"):
			// Tests of the built program play hostile peers, frame by frame.
		case ours && slices.Contains(apartTests[pkg], inner) && strings.HasSuffix(file, "_test.go"):
		case ours && !mayImport(pkg, inner):
			fault(i.Pos(), "%s may not import %s", pkg, inner)
		case ours && within(inner, testOnly...) && !strings.HasSuffix(file, "_test.go") && !within(pkg, append(testOnly, "bench", "fuzz/sim")...):
			fault(i.Pos(), "%s is for tests and benchmarks", inner)
		case strict && within(target, pureBans...):
			fault(i.Pos(), "%s is pure: it may not import %s", pkg, target)
		case strict && target == "time" && i.Name != nil:
			fault(i.Pos(), "%s is pure: it imports time under its own name", pkg)
		}
		for _, rule := range onlyIn {
			if within(target, rule.library) && !within(file, append([]string{"bench", "fuzz"}, rule.places...)...) {
				fault(i.Pos(), "%s belongs in %s only", target, strings.Join(rule.places, " and "))
			}
		}
	}
	if strict {
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(s.X) == "time" && slices.Contains(clock, s.Sel.Name) {
				fault(s.Pos(), "%s is pure: it may not call time.%s", pkg, s.Sel.Name)
			}
			return true
		})
	}
	return faults
}

// mayImport reports whether a package may import another package of the module.
func mayImport(pkg, target string) bool {
	if only, ok := apart[pkg]; ok {
		return target == pkg || slices.Contains(only, target)
	}
	switch {
	case within(target, "bench", "fuzz", "cmd"):
		return within(pkg, "bench") && within(target, "bench") || within(pkg, "fuzz") && within(target, "fuzz")
	case within(pkg, "bench", "fuzz"):
		return true
	case within(pkg, "cmd"):
		return within(target, "loop")
	case pkg == "loop":
		return within(target, "loop", "sched", "codec")
	case within(pkg, "loop"):
		return within(target, pkg, "loop/budget", "loop/protocol", "loop/web", "sched", "codec")
	case within(pkg, "sched"):
		return within(target, "sched")
	case within(pkg, "codec"):
		return within(target, "codec")
	}
	return false
}

// within reports whether a path is one of the packages or below one.
func within(p string, parents ...string) bool {
	return slices.ContainsFunc(parents, func(parent string) bool {
		return p == parent || strings.HasPrefix(p, parent+"/")
	})
}

// TestLayersCanFail shows each rule broken once.
func TestLayersCanFail(t *testing.T) {
	t.Parallel()
	f := func(file, source, want string) {
		t.Helper()
		faults := layerFaults(file, source)
		if want == "" && len(faults) > 0 || want != "" && (len(faults) != 1 || !strings.Contains(faults[0], want)) {
			t.Errorf("%s: got %q, want %q", file, faults, want)
		}
	}
	imports := func(p string) string { return "package p\nimport \"" + p + "\"\n" }
	f("cmd/treadle/x_test.go", imports("treadle/codec/gloom"), "")
	f("cmd/treadle/x_test.go", imports("treadle/sched"), "cmd/treadle may not import sched")
	f("cmd/treadle/x.go", imports("treadle/loop/client"), "")
	f("cmd/treadle/x.go", imports("treadle/sched"), "cmd/treadle may not import sched")
	f("loop/x.go", imports("treadle/codec/periodic"), "")
	f("loop/lines/x.go", imports("treadle/sched"), "")
	f("loop/lines/x.go", imports("treadle/loop/protocol"), "")
	f("loop/lines/x.go", imports("treadle/loop/gloom"), "loop/lines may not import loop/gloom")
	f("loop/lines/x.go", imports("treadle/loop"), "loop/lines may not import loop")
	f("loop/client/x_test.go", imports("treadle/cmd/treadle"), "loop/client may not import cmd/treadle")
	f("loop/x_test.go", imports("treadle/bench"), "loop may not import bench")
	f("sched/x_test.go", imports("treadle/codec/periodic"), "sched may not import codec/periodic")
	f("codec/gloom/x.go", imports("treadle/sched"), "codec/gloom may not import sched")
	f("codec/gloom/x.go", imports("treadle/codec"), "")
	f("codec/gloom/x.go", imports("treadle/loop"), "codec/gloom may not import loop")
	f("codec/gloom/x.go", imports("treadle/codec/jsontext/jsontest"), "is for tests and benchmarks")
	f("codec/gloom/x_test.go", imports("treadle/codec/jsontext/jsontest"), "")
	f("bench/x.go", imports("treadle/sched"), "")
	f("bench/x.go", imports("treadle/fuzz"), "bench may not import fuzz")
	f("codecs/x.go", imports("treadle/sched"), "codecs may not import sched")
	f("sched/x.go", imports("log/slog"), "sched is pure: it may not import log/slog")
	f("sched/x_test.go", imports("os"), "")
	f("sched/x.go", imports("math/rand/v2"), "may not import math/rand/v2")
	f("codec/dwork/x.go", imports("net/netip"), "may not import net/netip")
	f("sched/x.go", "package p\nimport \"time\"\nvar d time.Duration = time.Second\n", "")
	f("sched/x.go", "package p\nimport \"time\"\nvar n = time.Now()\n", "may not call time.Now")
	f("sched/x.go", "package p\nimport \"time\"\nvar n = time.After\n", "may not call time.After")
	f("sched/x.go", "package p\nimport clock \"time\"\nvar n = clock.Now()\n", "imports time under its own name")
	f("sched/x_test.go", "package p\nimport \"time\"\nvar n = time.Now()\n", "")
	f("loop/engine.go", imports("github.com/panjf2000/gnet/v2"), "")
	f("loop/session.go", imports("github.com/panjf2000/gnet/v2"), "belongs in loop/engine.go only")
	f("loop/dwork/zmq/x.go", imports("github.com/go-zeromq/zmq4"), "")
	f("loop/dwork/x.go", imports("github.com/go-zeromq/zmq4"), "belongs in loop/dwork/zmq only")
	f("loop/disbatch/store/x.go", imports("go.mongodb.org/mongo-driver/bson"), "")
	f("loop/kts46/store/x.go", imports("go.mongodb.org/mongo-driver/bson"), "")
	f("loop/disbatch/web/x.go", imports("go.mongodb.org/mongo-driver/mongo"), "belongs in loop/disbatch/store and loop/disbatch/sitetest and loop/kts46/store only")
	f("loop/kts46/x.go", imports("go.mongodb.org/mongo-driver/bson"), "belongs in loop/disbatch and loop/kts46/store only")
	f("loop/kts46/x.go", imports("treadle/loop/kts46/store"), "")
	f("loop/kts46/x.go", imports("treadle/loop/journal"), "loop/kts46 may not import loop/journal")
	f("loop/kts46/x_test.go", imports("treadle/loop/journal"), "")
	f("loop/kts46/x_test.go", imports("treadle/loop"), "loop/kts46 may not import loop")
	f("loop/disbatch/store/x.go", imports("treadle/loop/disbatch/mongotest"), "is for tests and benchmarks")
	f("loop/disbatch/store/x_test.go", imports("treadle/loop/disbatch/mongotest"), "")
	f("bench/x.go", imports("treadle/loop/disbatch/mongotest"), "")
	f("loop/disbatch/store/x.go", imports("treadle/loop/disbatch/sitetest"), "is for tests and benchmarks")
	f("loop/gloom/x.go", imports("treadle/loop/protocol"), "")
	f("loop/gloom/x.go", imports("treadle/loop"), "loop/gloom may not import loop")
	f("loop/gloom/x.go", imports("treadle/codec/periodic"), "loop/gloom may not import codec/periodic")
	f("loop/dwork/x.go", imports("treadle/loop/dwork/zmq"), "")
	f("loop/dwork/x.go", imports("treadle/loop/gloom"), "loop/dwork may not import loop/gloom")
	f("loop/dwork/x.go", imports("treadle/codec/gloom"), "loop/dwork may not import codec/gloom")
	f("loop/dwork/x_test.go", imports("treadle/loop"), "loop/dwork may not import loop")
	f("loop/dwork/zmq/x.go", imports("treadle/loop/dwork"), "loop/dwork/zmq may not import loop/dwork")
	f("loop/periodic/x.go", imports("treadle/codec/periodic"), "")
	f("loop/periodic/x.go", imports("treadle/loop/journal"), "loop/periodic may not import loop/journal")
	f("loop/protocol/x.go", imports("treadle/codec/gloom"), "loop/protocol may not import codec/gloom")
	f("loop/disbatch/x.go", imports("treadle/loop/disbatch/node"), "")
	f("loop/disbatch/x.go", imports("treadle/loop/disbatch/store"), "loop/disbatch may not import loop/disbatch/store")
	f("loop/disbatch/store/x.go", imports("treadle/loop/disbatch/node"), "loop/disbatch/store may not import loop/disbatch/node")
	f("loop/disbatch/store/x_test.go", imports("treadle/loop/disbatch/web"), "loop/disbatch/store may not import loop/disbatch/web")
	f("loop/disbatch/x.go", imports("treadle/loop/disbatch/web"), "")
	f("loop/disbatch/x.go", imports("treadle/loop"), "loop/disbatch may not import loop")
	f("loop/disbatch/config/x.go", imports("treadle/loop/disbatch/store"), "loop/disbatch/config may not import loop/disbatch/store")
	f("loop/disbatch/node/x.go", imports("treadle/loop/disbatch/store"), "")
	f("loop/disbatch/node/x.go", imports("treadle/loop/disbatch"), "loop/disbatch/node may not import loop/disbatch")
	f("loop/disbatch/node/x.go", imports("treadle/loop/disbatch/web"), "loop/disbatch/node may not import loop/disbatch/web")
	f("loop/disbatch/node/x.go", imports("treadle/sched"), "loop/disbatch/node may not import sched")
	f("loop/disbatch/web/x.go", imports("treadle/loop/web"), "")
	f("loop/disbatch/web/x.go", imports("treadle/loop/disbatch/node"), "loop/disbatch/web may not import loop/disbatch/node")
	f("loop/cluster/x.go", imports("go.etcd.io/raft/v3"), "")
	f("loop/x.go", imports("go.etcd.io/raft/v3"), "belongs in loop/cluster only")
	f("loop/cluster/x.go", imports("treadle/loop/journal"), "")
	f("loop/cluster/x.go", imports("treadle/sched"), "loop/cluster may not import sched")
	f("loop/x.go", imports("unsafe"), "unsafe belongs in codec/dwork/dworkpb/dwork.pb.go only")
	f("loop/x.go", "package common\n", "a package called common says nothing")
	f("loop/x.go", "package", "expected 'IDENT'")
}
