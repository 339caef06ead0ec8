package sched

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGraphDoor: the files of the shard know the graph by the methods that the comment of graph
// lists, and each of those has a caller among them.
func TestGraphDoor(t *testing.T) {
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
			for _, m := range regexp.MustCompile(`(?m)^//\t(\w+) `).FindAllStringSubmatch(graphComment(f), -1) {
				listed = append(listed, m[1])
			}
		case strings.HasPrefix(name, "graph_"), strings.HasPrefix(name, "invariants"), strings.HasSuffix(name, "_test.go"):
		default:
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.SelectorExpr); ok && x.Sel.Name == "graph" {
						called = append(called, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	slices.Sort(listed)
	slices.Sort(called)
	if called = slices.Compact(called); !slices.Equal(listed, called) {
		t.Errorf("the comment of graph lists %v, the shard uses %v", listed, called)
	}
}

func graphComment(f *ast.File) string {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
			var b strings.Builder
			for _, c := range g.Doc.List {
				b.WriteString(c.Text + "\n")
			}
			return b.String()
		}
	}
	return ""
}
