package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type printManCmd struct{}

// Help implements kong.HelpProvider.
func (printManCmd) Help() string {
	return `All commands with their flags, in the language of man.

	treadle print man > /usr/local/share/man/man1/treadle.1`
}

// Run prints the manual page.
func (printManCmd) Run(con *console, parsed *kong.Context) error {
	_, err := io.WriteString(con.out, manual(parsed.Model))
	return err
}

// manual returns the manual page of the program.
func manual(app *kong.Application) string {
	m := &roff{}
	m.macro("TH", "TREADLE", "1", "", "treadle "+version, "User Commands")
	m.macro("SH", "NAME")
	m.text("treadle - a job server and its command line")
	m.macro("SH", "SYNOPSIS")
	m.text("treadle" + app.Summary())
	m.macro("SH", "DESCRIPTION")
	m.help(topHelp)
	m.macro("SH", "OPTIONS")
	m.flags(app.Flags)
	m.macro("SH", "COMMANDS")
	for _, command := range app.Children {
		m.command(command)
	}
	m.macro("SH", "EXIT STATUS")
	for _, e := range exits {
		m.entry(fmt.Sprint(e.code), e.meaning)
	}
	m.macro("SH", "SEE ALSO")
	m.text("treadle help TOPIC prints a page about: " + strings.Join(topics, ", ") + ".")
	return m.b.String()
}

// roff is a text in the language of man.
type roff struct{ b strings.Builder }

// plain returns a text as roff shows it: no character of it is a command.
func plain(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

// macro writes a line with a macro and its arguments.
func (m *roff) macro(name string, args ...string) {
	m.b.WriteString("." + name)
	for _, arg := range args {
		m.b.WriteString(` "` + strings.ReplaceAll(plain(arg), `"`, `""`) + `"`)
	}
	m.b.WriteByte('\n')
}

// text writes a line of text. A point at its beginning would be a macro.
func (m *roff) text(line string) {
	if strings.HasPrefix(line, ".") {
		m.b.WriteString(`\&`)
	}
	m.b.WriteString(plain(line) + "\n")
}

// help writes a help text: paragraphs, and examples behind tabs.
func (m *roff) help(text string) {
	example, apart := false, false
	for line := range strings.Lines(strings.TrimSpace(text)) {
		shown, isExample := strings.CutPrefix(strings.TrimRight(line, "\n"), "\t")
		if shown == "" {
			apart = true
			continue
		}
		if example && !isExample {
			m.b.WriteString(".fi\n.RE\n")
		}
		if apart || example != isExample {
			m.macro("PP")
		}
		if isExample && !example {
			m.b.WriteString(".RS\n.nf\n")
		}
		example, apart = isExample, false
		m.text(shown)
	}
	if example {
		m.b.WriteString(".fi\n.RE\n")
	}
}

// entry writes a term and its explanation.
func (m *roff) entry(term, text string) {
	m.macro("TP")
	m.b.WriteString(`\fB` + plain(term) + `\fR` + "\n")
	m.text(strings.ReplaceAll(text, "\n", " "))
}

func (m *roff) flags(all []*kong.Flag) {
	for _, f := range all {
		if !f.Hidden {
			m.entry(f.String(), f.Help)
		}
	}
}

// command writes a command with what it takes, and those below it.
func (m *roff) command(node *kong.Node) {
	if node.Hidden {
		return
	}
	m.macro("SS", "treadle "+node.Summary())
	m.text(node.Help)
	if node.Detail != "" {
		m.macro("PP")
		m.help(node.Detail)
	}
	for _, p := range node.Positional {
		m.entry(p.Summary(), p.Help)
	}
	m.flags(node.Flags)
	for _, child := range node.Children {
		m.command(child)
	}
}
