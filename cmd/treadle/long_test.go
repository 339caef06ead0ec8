package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLongNamesEveryShortenedTest: the Makefile's LONG names every test that is shorter under -short, and they are in
// the packages that `make long` tests: `make test` has -short, and what `make long` forgets is run nowhere.
func TestLongNamesEveryShortenedTest(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for dir, functions := range testFunctions(t) {
		for _, name := range askingShort(functions) {
			if !strings.HasPrefix(name, "Test") {
				continue
			}
			want = append(want, name)
			in := func(folder string) bool { return strings.HasPrefix(filepath.ToSlash(dir)+"/", root+folder) }
			if !slices.ContainsFunc([]string{"/cmd/treadle/", "/loop/", "/sched/", "/fuzz/sim/"}, in) {
				t.Errorf("%s of %s is in no package that `make long` tests", name, dir)
			}
		}
	}
	slices.Sort(want)
	m := regexp.MustCompile(`(?m)^LONG = (.*)$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatal("the Makefile has no LONG")
	}
	if got := strings.Join(want, "|"); got != string(m[1]) {
		t.Errorf("the Makefile has LONG = %s; the tests that ask for -short are\n%s", m[1], got)
	}
	m = regexp.MustCompile(`(?m)^NIGHTLY = (.*)$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatal("the Makefile has no NIGHTLY")
	}
	for name := range strings.SplitSeq(string(m[1]), "|") {
		if !slices.Contains(want, name) {
			t.Errorf("%s of NIGHTLY is not in LONG", name)
		}
	}
}

// testFunctions returns the functions of the module's test files by directory and name.
func testFunctions(t *testing.T) map[string]map[string]*ast.FuncDecl {
	all := make(map[string]map[string]*ast.FuncDecl)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(file)
		if all[dir] == nil {
			all[dir] = make(map[string]*ast.FuncDecl)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				all[dir][f.Name.Name] = f
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// askingShort returns the functions that call testing.Short, themselves or through others of them.
func askingShort(functions map[string]*ast.FuncDecl) []string {
	asking := []string{"Short"}
	for grown := true; grown; {
		grown = false
		for name, f := range functions {
			if !slices.Contains(asking, name) && calls(f, asking) {
				asking, grown = append(asking, name), true
			}
		}
	}
	return asking[1:]
}

// calls reports whether the function calls one of those that are named.
func calls(f *ast.FuncDecl, names []string) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch called := call.Fun.(type) {
		case *ast.Ident:
			found = found || called.Name != "Short" && slices.Contains(names, called.Name)
		case *ast.SelectorExpr:
			found = found || called.Sel.Name == "Short" && isTesting(called.X)
		}
		return true
	})
	return found
}

// isTesting reports whether the expression is the package testing.
func isTesting(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == "testing"
}
