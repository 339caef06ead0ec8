package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// bareSubject finds a comment whose subject is a bare pronoun: it names neither the thing nor what it does.
var bareSubject = regexp.MustCompile(`^(Who|Whoever|Whose|What|Whatever|Those|He|She|Nobody|Somebody|Everybody)\b`)

// privateWords are words of this project alone for ideas that have a standard name, which stands beside them.
var privateWords = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\bwho(m)?ever\b`):                                    "the caller, the sender, the peer",
	regexp.MustCompile(`(?i)\b(exhume\w*|leavers?)`):                             "reap, departed",
	regexp.MustCompile(`(?i)\b(farewell|lastWords)\b`):                           "half-close, shutdown",
	regexp.MustCompile(`(?i)\b(relieve\w*|maxDeaf)\b`):                           "shed",
	regexp.MustCompile(`(?i)\b(burden|foremost|picky|takeApart|comeBack)\b`):     "the words of sched/doc.go",
	regexp.MustCompile(`(?i)\b(wedged|netting|humane|errMet)\b`):                 "panicked, compacted, readable, over the limit",
	regexp.MustCompile(`(?i)\b(deaf|mortal|twins?)\b`):                           "never reads or stalled, expires, naive copy or equal",
	regexp.MustCompile(`(?i)\bbooks?\b`):                                         "registry",
	regexp.MustCompile(`(?i)\b(siege|misfortunes?|exodus|harvest(s|ed|ing)?)\b`): "attack, fault, disconnect, consume",
}

// translated are turns of phrase that read as translated, with what to write. A comment's lines are joined before.
var translated = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\bno more([.,;:)]|$| (and|then|because|but)\b)`):                    "no longer, none, nothing else",
	regexp.MustCompile(`(?i)([,;] (and )?|\b(a|an|the|no|any) \w+ |\bthose )of (which|whom)\b`): "a second sentence",
	regexp.MustCompile(`(?i)\bof before\b`):                                                     "earlier, previous",
	regexp.MustCompile(`(?i)\bthat (has|have) some\b`):                                          "that has, with",
	regexp.MustCompile(`(?i)\bto be had\b`):                                                     "free, available",
	regexp.MustCompile(`(?i)\bbesides? the (event )?loops?\b`):                                  "off the event loop",
	regexp.MustCompile(`(?i)\bcannot be meant\b`):                                               "is invalid",
	regexp.MustCompile(`(?i)\bstands? nowhere\b`):                                               "detached",
	regexp.MustCompile(`(?i)\bis the way back\b`):                                               "converts back",
	regexp.MustCompile(`(?i)\bif none exists\b`):                                                "if there is no job, if the queue has no task",
	regexp.MustCompile(`(?i)\bnobody's\b`):                                                      "unknown, of no peer",
}

// booleans finds a boolean that does not "report whether". An error reports that something failed.
var booleans = regexp.MustCompile(`(^|[.;:] )(\w+) (says|tells|reports) (that|whether|if)\b`)

// booleanFault returns the words of a comment's joined lines that describe a boolean by another formula than the
// house's, empty if there are none.
func booleanFault(joined string) string {
	for _, m := range booleans.FindAllStringSubmatch(joined, -1) {
		isError := strings.HasPrefix(strings.ToLower(m[2]), "err") || strings.HasSuffix(m[2], "Error")
		switch verb := m[3] + m[4]; {
		case verb == "reportswhether":
		case verb == "reportsthat" && isError:
		default:
			return m[0]
		}
	}
	return ""
}

// uncommented is the length in lines from which a function needs a comment. Tests say what they test by their names.
const uncommented = 12

// The widths of lines, with a tab of four columns for comments.
const (
	widestComment = 120
	widestCode    = 160
	// longText is the length from which a text may make its line wider: a message is easier to find in one piece.
	longText = 100
)

// widthFaults returns the comments and the lines of code that are too wide. Lines within a text of several lines do not
// count, nor do tables in comments, and code counts outside tests alone.
func widthFaults(set *token.FileSet, f *ast.File, file, source string) (faults []string) {
	allowed := make(map[int]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			first, last := set.Position(text.Pos()).Line, set.Position(text.End()).Line
			for line := first; line <= last && (last > first || len(text.Value) > longText); line++ {
				allowed[line] = true
			}
		}
		return true
	})
	for i, line := range strings.Split(source, "\n") {
		code := strings.TrimLeft(line, "\t")
		width := utf8.RuneCountInString(code)
		prose := strings.HasPrefix(code, "// ")
		switch indent := len(line) - len(code); {
		case allowed[i+1]:
		case prose && width+4*indent > widestComment:
			faults = append(faults, fmt.Sprintf("%s:%d: the comment has %d columns, more than %d", file, i+1, width+4*indent, widestComment))
		case !strings.HasPrefix(code, "//") && width+indent > widestCode && !strings.HasSuffix(file, "_test.go"):
			faults = append(faults, fmt.Sprintf("%s:%d: the line has %d columns, more than %d", file, i+1, width+indent, widestCode))
		}
	}
	return faults
}

// languageFaults returns what is wrong with the comments and names of a Go file. The lint of the house is small: it
// refuses the patterns that cost readers most, so that they do not come back.
func languageFaults(file, source string) (faults []string) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil {
		return []string{err.Error()}
	}
	faults = widthFaults(set, f, file, source)
	fault := func(at token.Pos, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%v: %s", set.Position(at), fmt.Sprintf(format, args...)))
	}
	for _, group := range f.Comments {
		text := group.Text()
		if bareSubject.MatchString(text) {
			fault(group.Pos(), "the comment begins with %q: name its subject", strings.Fields(text)[0])
		}
		joined := strings.Join(strings.Fields(text), " ")
		if found := booleanFault(joined); found != "" {
			fault(group.Pos(), "the comment says %q: reports whether", found)
		}
		for _, refused := range []map[*regexp.Regexp]string{privateWords, translated} {
			for word, standard := range refused {
				if found := word.FindString(joined); found != "" {
					fault(group.Pos(), "the comment says %q: %s", found, standard)
				}
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			lines := set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1
			if n.Doc == nil && lines >= uncommented && !strings.HasSuffix(file, "_test.go") {
				fault(n.Pos(), "the function %s of %d lines has no comment: say its contract", n.Name.Name, lines)
			}
			if n.Doc != nil && !strings.HasPrefix(n.Doc.Text(), n.Name.Name) {
				fault(n.Doc.Pos(), "the comment of %s does not begin with its name", n.Name.Name)
			}
		case *ast.Ident:
			for word, standard := range privateWords {
				if word.MatchString(n.Name) {
					fault(n.Pos(), "the name %s: %s", n.Name, standard)
				}
			}
		}
		return true
	})
	return faults
}

// TestLanguage holds the comments and names of all Go files to the project's language. Generated files are as their
// generator writes them, and this file says the words that it refuses.
func TestLanguage(t *testing.T) {
	t.Parallel()
	eachGoFile(t, func(file, source string) []string {
		if strings.HasSuffix(file, ".pb.go") || path.Base(file) == "language_test.go" {
			return nil
		}
		return languageFaults(file, source)
	})
}

// TestLanguageFaults shows the lint each pattern that it refuses.
func TestLanguageFaults(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"// What is left.\nvar x int":                                        `begins with "What"`,
		"// f tells whoever asks.\nfunc f() {}":                              `says "whoever"`,
		"// Ends it.\nfunc f() {}":                                           "does not begin with its name",
		"// f waits no\n// more.\nfunc f() {}":                               `says "no more."`,
		"// f keeps jobs, of\n// which one runs.\nfunc f() {}":               `says ", of which"`,
		"// f keeps the rules of before.\nfunc f() {}":                       `says "of before"`,
		"// f counts lanes that have some.\nfunc f() {}":                     `says "that have some"`,
		"// f says that a job is due.\nfunc f() {}":                          `says "f says that"`,
		"// f lists jobs. more reports\n// that some are left.\nfunc f() {}": "reports whether",
		"// f reports whether a job is due.\nfunc f() {}":                    "",
		"// errFull reports that a queue is full.\nvar errFull error":        "",
		"// f returns a job, nil if none exists.\nfunc f() {}":               `says "if none exists"`,
		"// f takes no more than n jobs.\nfunc f() {}":                       "",
		"var exhumed int":                                              "the name exhumed",
		"// f ends the session.\nfunc f() { g() }":                     "",
		"// f holds whose turn it is.\nfunc f() {}":                    "",
		"func f() {" + strings.Repeat("\n", 11) + "}":                  "has no comment",
		"func f() {" + strings.Repeat("\n", 10) + "}":                  "",
		"// f " + strings.Repeat("is wide ", 15) + "\nfunc f() {}":     "the comment has 125 columns",
		"//   - f " + strings.Repeat("is wide ", 15) + "\nvar x int":   "the comment has 129 columns",
		"//	a table " + strings.Repeat("is wide ", 15) + "\nvar x int": "",
		"var x = []int{" + strings.Repeat("1, ", 60) + "}":             "the line has 195 columns",
		"var x = `" + strings.Repeat("text ", 60) + "`":                "",
	} {
		got := strings.Join(languageFaults("x.go", "package x\n\n"+source+"\n"), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}
