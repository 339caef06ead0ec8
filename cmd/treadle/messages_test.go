package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// message is a text that a user can meet. Three dots stand for each part that is known only at run time.
type message struct {
	kind string // a section of messages.md
	file string // path in the repository
	text string
}

// The sections of messages.md.
const (
	logErrors      = "Errors of the log"
	logWarnings    = "Warnings of the log"
	logNotes       = "Notes of the log"
	logDetails     = "Details of the log"
	lineTexts      = "Lines of the command line"
	usageErrors    = "Usage errors"
	commandErrors  = "Errors of commands"
	protocolErrors = "Errors of protocols"
)

// sections are the sections of messages.md, each with its first paragraph.
var sections = [][2]string{
	{logErrors, "Level error: a part of the server has failed. [Troubleshooting](docs/troubleshooting.md) has each."},
	{logWarnings, "Level warn: the server goes on, and somebody should look. [Troubleshooting](docs/troubleshooting.md) has each."},
	{logNotes, "Level info: nothing has to be done. The reason of a closed connection is in\n[troubleshooting](docs/troubleshooting.md#a-connection-is-closed)."},
	{logDetails, "Level debug: for reports of faults."},
	{commandErrors, "A command ends with these on standard error, alone or one behind the other, with exit code 1, 3, 4 or 5;\nthe server has some as the reason of a line of its log. [Troubleshooting](docs/troubleshooting.md) has each."},
	{lineTexts, "Commands print these on standard error and go on."},
	{usageErrors, "A command ends with these and exit code 2: the message names the argument or the setting, and what it may be."},
	{protocolErrors, "These are answers to clients, or the reason behind another message, and say themselves what to change."},
}

// explained are the rooms whose errors each have an entry on the troubleshooting page.
var explained = []string{"cmd/treadle", "loop", "loop/client", "loop/journal", "loop/setting"}

// internal are errors that only the program itself looks at.
var internal = []string{
	"enough", "no task for this slot", "the server does not tell", "this connection has been closed", "unknown version",
	"a journal needs a directory", "a journal's shards and interval cannot be negative", "no such journal mode: ...", "no protocol keeps jobs of space",
}

// usageFunctions return errors that end a command with exit code 2.
var usageFunctions = []string{
	"Validate", "checkEnum", "checkBounds", "plainly", "checkCommand", "decodeText", "tokens", "checkValue", "unknownKey", "located", "parseDuration", "readUsers",
	"splitAddress", "validate", "Decode", "ParseMode", "periodicdAddress", "UnmarshalText",
}

// callKinds maps the functions that take a text to the kind of its message.
var callKinds = map[string]string{
	"Error": logErrors, "Warn": logWarnings, "Info": logNotes, "Debug": logDetails,
	"say": lineTexts, "tell": lineTexts, "badUsage": usageErrors, "noSuch": commandErrors, "BadOption": usageErrors, "policyError": usageErrors, "New": protocolErrors, "Errorf": protocolErrors,
}

// textTables maps the variables and constants that hold texts to the kind of their messages.
var textTables = map[string]string{"reasons": commandErrors, "serverless": usageErrors, "errNoKey": usageErrors, "databaseAdvice": protocolErrors}

// minWords is how many words a text in a table has that is a message, not a name.
const minWords = 4

// tableMessages returns the messages of a variable or constant that holds texts. It adds the name to used.
func tableMessages(file string, s *ast.ValueSpec, used map[string]bool) (all []message) {
	for i, name := range s.Names {
		kind := textTables[name.Name]
		if kind == "" || i >= len(s.Values) {
			continue
		}
		used[name.Name] = true
		ast.Inspect(s.Values[i], func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && len(strings.Fields(textOf(literal))) >= minWords {
				all = append(all, message{kind, file, textOf(literal)})
			}
			return true
		})
	}
	return all
}

// textAt is the argument with the text, of the functions that do not take it first.
var textAt = map[string]int{"BadOption": 1, "policyError": 2}

// verb is a part of a format that is known only at run time; dots are several of them side by side.
var (
	verb = regexp.MustCompile(`%[-+# 0-9.\[\]]*[a-zA-Z]`)
	dots = regexp.MustCompile(`\.{4,}`)
)

// textOf returns the text of an expression.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return textOf(e.X) + textOf(e.Y)
	case *ast.CallExpr:
		if _, name := called(e); name == "Sprintf" {
			return textOf(e.Args[0])
		}
	}
	return "..."
}

// called returns the name of a call's function, and that of its package or receiver.
func called(call *ast.CallExpr) (of, name string) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		if from, ok := f.X.(*ast.Ident); ok {
			of = from.Name
		}
		return of, f.Sel.Name
	}
	return "", ""
}

// messageOf returns the message of a call, if its function takes one. It adds the names that tell its kind to used.
func messageOf(file, function string, call *ast.CallExpr, used map[string]bool) (m message, found bool) {
	of, name := called(call)
	args := call.Args
	switch {
	case name == "LogLimited" && len(args) > 1:
		_, level := called(&ast.CallExpr{Fun: args[0]})
		name, args = strings.TrimPrefix(level, "Level"), args[1:]
	case (name == "say" || name == "tell") && filepath.Dir(file) != "cmd/treadle", name == "New" && of != "errors", name == "Errorf" && of != "fmt":
		return m, false
	case len(args) > textAt[name]:
		args = args[textAt[name]:]
	}
	kind := callKinds[name]
	if kind == "" || len(args) == 0 {
		return m, false
	}
	used[name] = true
	if kind == protocolErrors && slices.Contains(explained, filepath.Dir(file)) {
		kind = commandErrors
		if slices.Contains(usageFunctions, function) {
			kind = usageErrors
			used[function] = true
		}
	}
	return message{kind, file, textOf(args[0])}, true
}

// messagesOf returns the messages of a function or another declaration.
func messagesOf(name string, declared ast.Decl, used map[string]bool) (all []message) {
	function, isError := "", false
	if f, ok := declared.(*ast.FuncDecl); ok {
		function = f.Name.Name
		isError = function == "Error" && f.Recv != nil
	}
	ast.Inspect(declared, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if m, found := messageOf(name, function, n, used); found {
				all = append(all, m)
			}
		case *ast.ValueSpec:
			all = append(all, tableMessages(name, n, used)...)
		case *ast.ReturnStmt:
			if isError && len(n.Results) == 1 {
				kind := protocolErrors
				if slices.Contains(explained, filepath.Dir(name)) {
					kind = commandErrors
				}
				all = append(all, message{kind, name, textOf(n.Results[0])})
			}
		}
		return true
	})
	for i := range all {
		text := dots.ReplaceAllString(verb.ReplaceAllString(all[i].text, "..."), "...")
		all[i].text = strings.Join(strings.Fields(strings.ReplaceAll(text, "`", "'")), " ")
	}
	return slices.DeleteFunc(all, func(m message) bool {
		return strings.Trim(m.text, ".:;, -()") == "" || slices.Contains(internal, m.text)
	})
}

// everyMessage returns the messages of the program, and all of its literals. It fails the test when a name of callKinds
// or usageFunctions tells the kind of no message: the function has another name now, and its messages are missing.
func everyMessage(t *testing.T) (all []message, literals string) {
	t.Helper()
	used := make(map[string]bool)
	var texts strings.Builder
	for _, room := range []string{"cmd", "loop", "sched"} {
		err := filepath.WalkDir(filepath.Join(root, room), func(path string, d fs.DirEntry, err error) error {
			switch name := filepath.Base(path); {
			case name == "testdata" || name == "mongotest" || name == "sitetest":
				return filepath.SkipDir
			case err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "invariants") || strings.HasPrefix(name, "offline"):
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			for _, declared := range file.Decls {
				all = append(all, messagesOf(name, declared, used)...)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					texts.WriteString(textOf(literal) + "\n")
				}
				return true
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Concat(usageFunctions, slices.Collect(maps.Keys(callKinds)), slices.Collect(maps.Keys(textTables))) {
		if !used[name] {
			t.Errorf("no function or table %s makes a message", name)
		}
	}
	slices.SortFunc(all, func(a, b message) int {
		return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.file, b.file), cmp.Compare(a.kind, b.kind))
	})
	return slices.Compact(all), texts.String()
}

// messageList is messages.md.
func messageList(all []message) string {
	var b strings.Builder
	b.WriteString("# Messages: every line of the log and every error, by kind and file\n\n" +
		"With this list a developer of Treadle finds the file of the source that says a message: `...` stands for the parts\n" +
		"that differ. What a message means, and what to do, is in [troubleshooting](docs/troubleshooting.md).\n")
	for _, section := range sections {
		b.WriteString("\n## " + section[0] + "\n\n" + section[1])
		text := ""
		for _, m := range all {
			switch {
			case m.kind != section[0]:
				continue
			case m.text == text:
				b.WriteString(", " + m.file)
				continue
			case text == "":
				b.WriteByte('\n')
			}
			text = m.text
			b.WriteString("\n* `" + m.text + "`: " + m.file)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// entries returns the messages of the headings of the troubleshooting page.
func entries(page string) (all []string) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "### ") {
			for i, entry := range strings.Split(line, "`") {
				if i%2 == 1 {
					all = append(all, entry)
				}
			}
		}
	}
	return all
}

// minEntry is how many letters an entry has that stands for several messages.
const minEntry = 16

// covers reports whether an entry is a message, or its parts stand in the message in their order, the first at the
// beginning.
func covers(entry, text string) bool {
	if len(strings.ReplaceAll(entry, "...", "")) < minEntry {
		return entry == text
	}
	for i, part := range strings.Split(entry, "...") {
		at := strings.Index(text, part)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// missing returns the errors and warnings of the log and the errors of commands that no entry covers.
func missing(all []message, has []string) (texts []string) {
	for _, m := range all {
		explained := m.kind == logErrors || m.kind == logWarnings || m.kind == commandErrors
		if explained && !slices.ContainsFunc(has, func(entry string) bool { return covers(entry, m.text) }) {
			texts = append(texts, m.text)
		}
	}
	return slices.Compact(texts)
}

// stale returns the entries that neither cover a message nor stand in the literals of the program.
func stale(all []message, literals string, has []string) []string {
	return slices.DeleteFunc(has, func(entry string) bool {
		known := true
		for _, part := range strings.Split(entry, "...") {
			known = known && strings.Contains(literals, strings.Trim(part, " ()"))
		}
		return known || slices.ContainsFunc(all, func(m message) bool { return covers(entry, m.text) })
	})
}

// rewordedAs returns the index of the text that shares most words with an entry, at least half of them; -1: none.
func rewordedAs(entry string, texts []string) (at int) {
	words, best := strings.Fields(entry), 0
	at = -1
	for i, text := range texts {
		shared := 0
		for _, word := range words {
			if slices.Contains(strings.Fields(text), word) {
				shared++
			}
		}
		if shared > best && 2*shared >= len(words) {
			at, best = i, shared
		}
	}
	return at
}

// todo is the text of an entry that has no author yet.
const todo = "TODO: what it means, and what to do."

// rewriteEntries returns the troubleshooting page with the entries of reworded messages renamed, and an empty entry for
// each new message.
func rewriteEntries(page string, lacks, old []string) string {
	for _, entry := range old {
		if at := rewordedAs(entry, lacks); at >= 0 {
			page = strings.ReplaceAll(page, "`"+entry+"`", "`"+lacks[at]+"`")
			lacks = slices.Delete(lacks, at, at+1)
		}
	}
	for _, text := range lacks {
		page += "\n### `" + text + "`\n\n" + todo + "\n"
	}
	return page
}

// TestDocsMessages compares the messages in the source with messages.md, and the log's errors and warnings and
// the errors of commands with the headings of the troubleshooting page. -docs.rewrite writes the list anew, renames the
// entries of reworded messages, and adds an empty entry for each new message.
func TestDocsMessages(t *testing.T) {
	t.Parallel()
	all, literals := everyMessage(t)
	page, err := page("troubleshooting")
	if err != nil {
		t.Fatal(err)
	}
	lacks, old := missing(all, entries(page)), stale(all, literals, entries(page))
	if *rewriteDocs {
		for name, text := range map[string]string{"messages.md": messageList(all), "docs/troubleshooting.md": rewriteEntries(page, lacks, old)} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	list, err := os.ReadFile("messages.md")
	if err != nil || string(list) != messageList(all) {
		t.Errorf("messages.md is not what the source says, %v: go test ./cmd/treadle -run TestDocsMessages -docs.rewrite", err)
	}
	for _, text := range lacks {
		t.Errorf("the troubleshooting page has no entry for %q", text)
	}
	for _, entry := range old {
		t.Errorf("no message of the program is that of the entry %q", entry)
	}
	if strings.Contains(page, todo) {
		t.Errorf("the troubleshooting page has an entry without its text: %s", todo)
	}
}
