package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"treadle/loop"
	"treadle/loop/setting"
)

// FuzzTaskLine reads a line of a file of tasks. What it names, each name in quotes, is read as the same names, whatever
// stands around and between them.
func FuzzTaskLine(f *testing.F) {
	for _, line := range []string{"a", "a b\tc", `"a b" c "\"" ""`, "# a comment", "a # b", ` "#" `, `"`, `"a"b"c"`, "\u00a0a\u00a0", "\"\\xff\"", "`a`"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := splitWords(line)
		if err != nil {
			if words != nil {
				t.Fatalf("%q: %q, %v", line, words, err)
			}
			return
		}
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, strconv.Quote(w))
		}
		for _, again := range []string{strings.Join(quoted, " "), "\t" + strings.Join(quoted, " \t ") + " \r\n"} {
			if got, err := splitWords(again); err != nil || !slices.Equal(got, words) {
				t.Fatalf("%q names %q, and %s names %q, %v", line, words, again, got, err)
			}
		}
	})
}

// FuzzConfig reads a configuration file. What is wrong with it is told in one line with the file's name, and the line
// is one of its lines; a value that a setting takes is text, whose sizes are read as they are written again.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"", "# nothing\n", "bind = \"::1\"\nloops = 2\nmax-frame = \"64m\"\n", "periodic = [\"tcp://127.0.0.1:1\", \"off\"]\n", "bind = \"\"\"\na\"\"\"\nmax-frame = '1 GiB'\n",
		"max-frame = 67108864\n", "loops = 1.5\n", "loops = true\n", "[table]\nloops = 1\n", "loops = 1\nloops = 2\n", "config = \"x\"\n", "periodic = [1]\n", "loops = 12:00:00\n", "periodic.a = 1\n", "[[periodic]]\n",
	} {
		f.Add([]byte(text))
	}
	names := []string{"bind", "loops", "max-frame", "periodic"}
	f.Fuzz(func(t *testing.T, text []byte) {
		values, faults := parseConfig("FILE", text, names)
		for _, err := range faults {
			var fault *configError
			if !errors.As(err, &fault) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "--config FILE") || fault.line > 1+bytes.Count(text, []byte("\n")) {
				t.Fatalf("%q: %v", text, err)
			}
		}
		for name, value := range values {
			if !slices.Contains(names, name) {
				t.Fatalf("%q sets %s", text, name)
			}
			v, err := tokens(value, name == "periodic")
			if err != nil {
				continue
			}
			if list, ok := v.([]any); ok {
				v = fmt.Sprint(list...)
			}
			size, err := loop.ParseSize(v.(string))
			if again, wrong := loop.ParseSize(setting.Bytes(size)); err == nil && (wrong != nil || again != size || size < 0) {
				t.Fatalf("%q is the size %d, which is read as %d", v, size, again)
			}
		}
	})
}
