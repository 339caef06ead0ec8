package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// pages are the documents that treadle help TOPIC prints, one file a topic.
//
//go:embed docs/*.md
var pages embed.FS

// topics are the names of pages in the order in which a new user reads them.
var topics = []string{
	"quickstart", "failures", "pages", "policies", "api", "mail", "cron", "concepts", "periodic", "gloom", "dwork", "kts46", "disbatch", "beanstalk",
	"moving-from-beanstalkd", "faktory", "moving-from-faktory", "other-queues", "settings", "operations", "cluster", "metrics", "security",
	"troubleshooting", "adding-a-protocol",
}

// page returns the text of a topic.
func page(topic string) (string, error) {
	text, err := pages.ReadFile("docs/" + topic + ".md")
	return string(text), err
}

// subject returns the subject of a page with the heading "# Name: subject".
func subject(page string) string {
	heading, _, _ := strings.Cut(page, "\n")
	_, about, _ := strings.Cut(heading, ": ")
	return about
}

// printHelp prints kong's help, and the topics below the help of the whole program.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || ctx.Selected() != nil {
		return err
	}
	fmt.Fprintln(ctx.Stdout, "\nTopics:")
	for _, topic := range topics {
		text, err := page(topic)
		if err != nil {
			return err
		}
		fmt.Fprintf(ctx.Stdout, "  %-17s  %s\n", topic, subject(text))
	}
	_, err := fmt.Fprintln(ctx.Stdout, "\nRun \"treadle help <topic>\" to read one, \"treadle help '<text>'\" to look up a setting or a message.")
	return err
}

// helpTopic runs treadle help NAME, or treadle help TEXT, unless NAME is only a command; ours reports whether it did. A
// name that is both, as dwork, is the topic. A text is looked for in all pages.
func helpTopic(parser *kong.Kong, con console, args []string) (ours bool, err error) {
	if len(args) < 2 || args[0] != "help" || strings.HasPrefix(args[1], "-") {
		return false, nil
	}
	name, names := strings.Join(args[1:], " "), slices.Clone(topics)
	if slices.Contains(topics, name) {
		text, err := page(name)
		if err != nil {
			return true, err
		}
		return true, con.show(text)
	}
	for _, command := range parser.Model.Children {
		if command.Name == args[1] {
			return false, nil
		}
		names = append(names, command.Name)
	}
	found, err := find(name)
	if err != nil {
		return true, err
	}
	pages, err := mentions(name)
	if err != nil || len(found) > 0 || pages != "" {
		return true, errors.Join(err, con.show(listing(found)+pages))
	}
	return true, badUsage("no topic, command, setting or message %q, the nearest: %s (see treadle help)", name, strings.Join(nearest(name, names), ", "))
}

// nearest returns the names that begin with a typed word or differ from it in at most half of its letters, the nearest
// first; the topics if there is none.
func nearest(typed string, names []string) []string {
	slices.Sort(names)
	names = slices.Compact(names) // dwork is a topic and a command
	far := func(name string) int {
		if strings.HasPrefix(name, typed) {
			return 0
		}
		return distance(typed, name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return far(name) > len(typed)/2 })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(far(a), far(b)) })
	if len(names) == 0 {
		return topics
	}
	return names
}

// show prints a text, at a terminal through the command in PAGER.
func (c *console) show(text string) error {
	pager := os.Getenv("PAGER")
	if pager == "" || !isTerminal(c.out) {
		_, err := io.WriteString(c.out, text)
		return err
	}
	// An interrupt at the terminal is for the pager alone.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	cmd := exec.Command("sh", "-c", pager)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), c.out, c.err
	if err := cmd.Run(); err != nil { // not wrapped: its exit code is the pager's
		return fmt.Errorf("cannot show the page with PAGER=%s: %v", pager, err)
	}
	return nil
}
