package dwork

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files in testdata")

// TestGolden plays the conversations of testdata. A line that begins with > is a request, the next line its reply.
// "pass 5s" advances the clock. One conversation is a capture of the reference hub, whose first line lists where
// Treadle differs.
func TestGolden(t *testing.T) {
	files, err := os.ReadDir("testdata")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d conversations: %v", len(files), err)
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			path := "testdata/" + f.Name()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{}
			if strings.Contains(f.Name(), "settings") {
				o = Options{Idle: AnswerNotFound, Complete: completeHolder, MaxSteal: 2, Remember: time.Minute}
			}
			hub := newTestHub(t, o)
			got, asked := play(hub, string(text))
			if asked < 5 {
				t.Fatalf("%d requests", asked)
			}
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("got\n%s\nwant\n%s", got, text)
			}
		})
	}
}

func play(hub *testHub, script string) (got string, asked int) {
	var out strings.Builder
	for line := range strings.Lines(script) {
		side, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch side {
		case "<":
		case ">":
			out.WriteString(line + "< " + hub.ask(rest) + "\n")
			asked++
			hub.clock.WallMicros++
		case "pass":
			d, err := time.ParseDuration(rest)
			if err != nil {
				hub.t.Fatal(err)
			}
			hub.pass(d)
			out.WriteString(line)
		default:
			out.WriteString(line)
		}
	}
	return out.String(), asked
}
