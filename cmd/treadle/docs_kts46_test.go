package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"treadle/loop/disbatch/mongotest"
)

// pageCommand is a command of a page.
type pageCommand struct {
	words   []string
	prompt  bool   // the page shows the output
	outputs string // with a prompt
}

// pageCommands returns the commands of treadle in the code blocks of a page.
func pageCommands(t *testing.T, page string) (all []pageCommand) {
	t.Helper()
	text, err := os.ReadFile("docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(text), "```\n") {
		if i%2 == 0 {
			continue
		}
		for line := range strings.Lines(block) {
			command, prompt := strings.CutPrefix(line, "$ ")
			switch words := pageWords(command); {
			case len(words) > 1 && words[0] == "treadle":
				all = append(all, pageCommand{words: words[1:], prompt: prompt})
			case strings.HasPrefix(block, "$ "):
				all[len(all)-1].outputs += line // of the block's last command
			}
		}
	}
	return all
}

// TestKts46Page runs the commands of the page in their order, without MongoDB and behind the
// move of a site: what the page shows of their output is what they say.
func TestKts46Page(t *testing.T) {
	t.Parallel()
	fake, err := mongotest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Stop()
	dir := t.TempDir()
	var s *scheduler
	stop := func() {
		if s != nil {
			s.signal(os.Interrupt)
			s.exit(0)
		}
	}
	commands := pageCommands(t, "kts46.md")
	for _, c := range commands {
		switch {
		case c.words[0] == "serve":
			stop()
			switch {
			case slices.Equal(c.words, []string{"serve", "&"}):
				s = startScheduler(t, t.TempDir())
			case len(c.words) == 5 && c.words[1] == "--bind" && c.words[3] == "--kts46-mongodb":
				s = startScheduler(t, dir, "--kts46-mongodb", "mongodb://"+fake.Address())
			default:
				t.Fatalf("the page starts a server by %q", c.words)
			}
		case c.words[0] == "kts46" && c.words[1] == "run" && !c.prompt: // a site has the job
			s.says("*", 0, "add-project", c.words[2])
			s.says("*", 0, "add-job", c.words[2], c.words[3], "{simulationParameters: {duration: 10.0, stepDuration: 0.5, batchLength: 8}}")
			s.says("*", 0, c.words[1:]...)
		case c.prompt:
			s.says(c.outputs, 0, c.words[1:]...)
		default:
			s.says("*", 0, c.words[1:]...)
		}
	}
	if len(commands) != 10 {
		t.Errorf("the page has %d commands", len(commands))
	}
	stop()
}

// pageWords splits a command as a shell does; quotes are single ones.
func pageWords(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}
