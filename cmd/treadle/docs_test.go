package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// everyPage returns the README and all pages, by their paths in the repository.
func everyPage(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"README.md", "fuzz/README.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	for _, topic := range topics {
		text, err := page(topic)
		if err != nil {
			t.Fatal(err)
		}
		all["cmd/treadle/docs/"+topic+".md"] = text
	}
	return all
}

// TestDocsOpen: every file of docs is a topic; its heading says what it is about, and its first
// paragraph what a reader can do after it.
func TestDocsOpen(t *testing.T) {
	t.Parallel()
	files, err := pages.ReadDir("docs")
	if err != nil || len(files) != len(topics) {
		t.Errorf("%d files for %d topics, %v", len(files), len(topics), err)
	}
	for _, topic := range topics {
		text, err := page(topic)
		paragraphs := strings.SplitN(text, "\n\n", 3)
		if err != nil || subject(text) == "" || len(paragraphs) < 3 || !strings.HasPrefix(paragraphs[1], "After this page you can ") {
			t.Errorf("%s begins with %q, %v", topic, paragraphs[:min(2, len(paragraphs))], err)
		}
	}
}

// anchor is the name that a heading of Markdown has in links.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(strings.TrimLeft(heading, "#")))
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(heading, ""), " ", "-")
}

// TestDocsLinks: what the README and the pages link to exists.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	all, links := everyPage(t), 0
	for name, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
			links++
			target := filepath.Join(filepath.Dir(name), m[1])
			if m[1] == "" {
				target = name
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
			found := m[2] == ""
			for line := range strings.Lines(all[target]) {
				found = found || strings.HasPrefix(line, "#") && "#"+anchor(line) == m[2]
			}
			if !found {
				t.Errorf("%s links to %s of %s, which has no such heading", name, m[2], target)
			}
		}
	}
	if links < 15 {
		t.Errorf("%d links", links)
	}
}

// TestDocsNames: every flag that the README and the pages name is one of the program's, every `treadle word` a
// command or a topic, every `make word` a target, and every `word` of `file.go` a function there.
func TestDocsNames(t *testing.T) {
	t.Parallel()
	program, err := newParser(&cli{}, &console{}, "")
	if err != nil {
		t.Fatal(err)
	}
	known, words := []string(nil), append([]string{"help", "command"}, topics...)
	commands := program.Model.Children
	for len(commands) > 0 {
		for _, f := range commands[0].AllFlags(false) {
			for _, one := range f {
				known = append(known, "--"+one.Name)
			}
		}
		words = append(words, commands[0].Name)
		commands = append(commands[1:], commands[0].Children...)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range everyPage(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(text, -1) {
			if !bytes.Contains(makefile, []byte("\n"+m[1]+": ")) {
				t.Errorf("%s names make %s, which is no target", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile("[ `(]"+`(--[a-z][a-z0-9-]*)`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s names %s, which no command has", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`(\\w+)` of `([a-z0-9/_]+\\.go)`").FindAllStringSubmatch(text, -1) {
			source, err := os.ReadFile(filepath.Join(root, m[2]))
			if err != nil || !regexp.MustCompile(`(?m)^func .*\b`+m[1]+`\(`).Match(source) {
				t.Errorf("%s names %s of %s, which has no such function: %v", name, m[1], m[2], err)
			}
		}
		for _, m := range regexp.MustCompile("`treadle ([a-zA-Z0-9-]+)").FindAllStringSubmatch(text, -1) {
			if !slices.Contains(words, strings.ToLower(m[1])) {
				t.Errorf("%s names treadle %s, which is no command", name, m[1])
			}
		}
	}
}

var rewriteDocs = flag.Bool("docs.rewrite", false, "write the lists in docs/settings.md, docs/metrics.md and messages.md anew")

// settingsList is the list of flags of treadle serve in docs/settings.md.
func settingsList(serve *kong.Node) string {
	var b strings.Builder
	group := ""
	for _, f := range serve.Flags {
		if f.Group != nil && f.Group.Title != group {
			group = f.Group.Title
			b.WriteString("\n### " + group + "\n\n")
		}
		entry := "* `--" + f.Name
		switch {
		case f.Enum != "":
			entry += " " + strings.ReplaceAll(f.Enum, ",", "|")
		case f.PlaceHolder != "":
			entry += " " + f.PlaceHolder
		}
		entry += "`: " + strings.ReplaceAll(f.Help, "${default}", f.Default)
		writeEntry(&b, entry)
	}
	return b.String()
}

// writeEntry writes an entry of a list in lines of at most 100 characters.
func writeEntry(b *strings.Builder, entry string) {
	column := 0
	for i, word := range strings.Fields(entry) {
		switch {
		case column+1+len(word) > 100:
			b.WriteString("\n  ")
			column = 2
		case i > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	b.WriteByte('\n')
}

// TestDocsSettings: the page has each flag of treadle serve --help with its text, and its file works.
func TestDocsSettings(t *testing.T) {
	t.Parallel()
	text, err := page("settings")
	if err != nil {
		t.Fatal(err)
	}
	program, err := newParser(&cli{}, &console{}, "")
	if err != nil {
		t.Fatal(err)
	}
	var serve *kong.Node
	for _, command := range program.Model.Children {
		if command.Name == "serve" {
			serve = command
		}
	}
	before, rest, _ := strings.Cut(text, "`treadle serve --help`.\n\n")
	_, after, _ := strings.Cut(rest, "## Notes")
	want := before + "`treadle serve --help`.\n\n" + settingsList(serve) + "\n## Notes" + after
	if *rewriteDocs {
		if err := os.WriteFile("docs/settings.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != want {
		t.Error("docs/settings.md is not what treadle serve --help says: go test ./cmd/treadle -run TestDocsSettings -docs.rewrite")
	}
	help, _, _ := treadle(t, "", "serve", "--help")
	help = strings.Join(strings.Fields(help), " ")
	said := regexp.MustCompile(` --([a-z0-9-]+)=`).FindAllStringSubmatch(help[strings.Index(help, "--config=FILE"):], -1)
	if len(said) < 40 {
		t.Errorf("the help has %d flags", len(said))
	}
	for _, flag := range said {
		if !strings.Contains(want, "* `--"+flag[1]+" ") {
			t.Errorf("the page has no --%s", flag[1])
		}
	}
	for _, entry := range strings.Split("\n"+settingsList(serve), "\n* `")[1:] {
		entry, _, _ = strings.Cut(entry, "\n\n")
		_, text, _ := strings.Cut(strings.Join(strings.Fields(entry), " "), "`: ")
		if !strings.Contains(help, text) {
			t.Errorf("the help does not say %q", text)
		}
	}
	_, file, _ := strings.Cut(text, "```toml\n")
	file, _, _ = strings.Cut(file, "```")
	if _, err := parse(t, "serve", "--config", config(t, file)); err != nil {
		t.Errorf("the page's file: %v", err)
	}
}
