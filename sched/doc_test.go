package sched

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// firstWords returns the first words of the indented lines of a part of doc.go, without the head of
// a table.
func firstWords(t *testing.T, heading string) (words []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^//\t(\w+) `).FindAllStringSubmatch(section(t, heading), -1) {
		words = append(words, m[1])
	}
	slices.Sort(words)
	return words
}

// TestDocVerbs checks that doc.go lists the exported methods of Scheduler and Peer with their files, and no others.
func TestDocVerbs(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var verbs, listed []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "invariants") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || !fn.Name.IsExported() {
				continue
			}
			if p, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
				if of, ok := p.X.(*ast.Ident); ok && (of.Name == "Scheduler" || of.Name == "Peer") {
					verbs = append(verbs, name+" "+fn.Name.Name)
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`(\w+\.go) ([\w, ]+)`).FindAllStringSubmatch(section(t, "Verbs"), -1) {
		for verb := range strings.SplitSeq(m[2], ", ") {
			listed = append(listed, m[1]+" "+verb)
		}
	}
	slices.Sort(verbs)
	slices.Sort(listed)
	if !slices.Equal(listed, verbs) {
		t.Errorf("doc.go lists %v, there are %v", listed, verbs)
	}
}

// TestDocStates checks that the table of doc.go has a row for each state.
func TestDocStates(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "job.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		first, ok := g.Specs[0].(*ast.ValueSpec)
		if !ok || first.Names[0].Name != "free" {
			continue
		}
		for _, s := range g.Specs[1:] {
			states = append(states, s.(*ast.ValueSpec).Names[0].Name)
		}
	}
	slices.Sort(states)
	got := slices.DeleteFunc(firstWords(t, "States"), func(w string) bool { return w == "state" })
	if !slices.Equal(got, states) {
		t.Errorf("the table has %v, the states are %v", got, states)
	}
}

// section returns a part of doc.go.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "// # "+heading+"\n")
	part, _, _ = strings.Cut(part, "// # ")
	return part
}

// TestDocWalk checks that each function of the walk of one job is in the file that doc.go names.
func TestDocWalk(t *testing.T) {
	steps := regexp.MustCompile(`(\w+)\s(?://\s)?\((\w+\.go)\)`).FindAllStringSubmatch(section(t, "One job"), -1)
	if len(steps) < 10 {
		t.Errorf("the walk has %d functions", len(steps))
	}
	for _, m := range steps {
		f, err := parser.ParseFile(token.NewFileSet(), m[2], nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
			fn, ok := d.(*ast.FuncDecl)
			return ok && fn.Name.Name == m[1]
		}) {
			t.Errorf("%s is not a function of %s", m[1], m[2])
		}
	}
}

// TestDocFiles checks that the map of doc.go has every file, and none that is not there.
func TestDocFiles(t *testing.T) {
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{"doc.go": true}
	for _, pattern := range regexp.MustCompile(`[\w*]+\.go`).FindAllString(section(t, "Files"), -1) {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Errorf("no file is named %s: %v", pattern, err)
		}
		for _, name := range found {
			named[name] = true
		}
	}
	for _, name := range all {
		if !named[name] && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s is not in the map", name)
		}
	}
}

// TestGraphEntryPoints checks that the shard's files use only those methods of graph that its comment
// lists, and that each of these has a caller among them.
func TestGraphEntryPoints(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed, called []string
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		switch {
		case err != nil:
			t.Fatal(err)
		case name == "graph.go":
			for _, m := range regexp.MustCompile(`(?m)^\t(\w+) `).FindAllStringSubmatch(typeComment(f, "graph"), -1) {
				listed = append(listed, m[1])
			}
		case strings.HasPrefix(name, "graph_"), strings.HasPrefix(name, "invariants"), strings.HasSuffix(name, "_test.go"):
		default:
			called = append(called, usesOf(f, "graph")...)
		}
	}
	slices.Sort(listed)
	slices.Sort(called)
	if called = slices.Compact(called); !slices.Equal(listed, called) {
		t.Errorf("the comment of graph lists %v, the shard uses %v", listed, called)
	}
}

// typeComment returns the comment of a type.
func typeComment(f *ast.File, name string) string {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE && g.Specs[0].(*ast.TypeSpec).Name.Name == name {
			return g.Doc.Text()
		}
	}
	return ""
}

// usesOf returns the names that are selected of a field.
func usesOf(f *ast.File, field string) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.SelectorExpr); ok && x.Sel.Name == field {
				names = append(names, s.Sel.Name)
			}
		}
		return true
	})
	return names
}
