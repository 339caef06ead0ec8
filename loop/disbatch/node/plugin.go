package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
)

// kindDemo is the kind of DemoPlugin; no configuration names it.
const kindDemo = "demo"

// What a task's stdout says when its plugin did not run or did not end; stderr has the
// reason.
const (
	unableToStart    = "Unable to start"
	unableToComplete = "Unable to complete"
)

// pluginOf returns how a plugin of queues of a dialect is run by the node, or why it cannot be;
// errLoading while the task runner is asked.
func pluginOf(c *config.File, name string, schema disbatch.Schema, load loads) (config.Plugin, error) {
	if p, ok := c.TreadlePlugins[name]; ok {
		if p.Kind == config.KindFunction && p.Function == "" {
			p.Function = name
		}
		p.Class = name
		return p, available(&p)
	}
	p, err := delegated(c, name, schema, load)
	if err != nil && err != errLoading && name == config.DemoPlugin {
		return config.Plugin{Kind: kindDemo}, nil
	}
	return p, err
}

// available says why the plugin cannot run on this machine, if so.
func available(p *config.Plugin) error {
	if len(p.Command) == 0 {
		return nil
	}
	program := p.Command[0]
	if p.Dir != "" && strings.Contains(program, "/") && !filepath.IsAbs(program) {
		program = filepath.Join(p.Dir, program)
	}
	_, err := exec.LookPath(program)
	return err
}

// ended is the end of a task whose plugin said nothing about it.
func ended(stdout string, reason error) outcome {
	return outcome{status: disbatch.StatusFailed, stdout: stdout, stderr: reason.Error()}
}

// statusOf is the status that a plugin's number stands for.
func statusOf(number json.RawMessage) int {
	var n json.Number
	if json.Unmarshal(number, &n) == nil {
		if i, err := n.Int64(); err == nil && i > 0 && i <= 1<<31-1 {
			return int(i)
		}
	}
	return disbatch.StatusFailed
}

// parseResult reads what a worker answers: an object with status, stdout and stderr, or
// else bytes that are the stdout of a success.
func parseResult(data []byte) outcome {
	var r struct{ Status, Stdout, Stderr json.RawMessage }
	if json.Unmarshal(data, &r) != nil || r.Status == nil {
		return outcome{status: disbatch.StatusSucceeded, stdout: utf8Text(data), stderr: ""}
	}
	return outcome{status: statusOf(r.Status), stdout: outputOf(r.Stdout), stderr: outputOf(r.Stderr)}
}

// outputOf is the text of a JSON string, or the JSON of anything else.
func outputOf(v json.RawMessage) string {
	var s string
	if v == nil || string(v) == "null" || json.Unmarshal(v, &s) == nil {
		return s
	}
	return utf8Text(v)
}

// statusLine takes the last line off a plugin's stdout if it is an object with a status.
func statusLine(stdout []byte) (rest []byte, status int, ok bool) {
	all := bytes.TrimRight(stdout, " \t\r\n")
	start := bytes.LastIndexByte(all, '\n') + 1
	var line struct{ Status json.RawMessage }
	if start == len(all) || all[start] != '{' || json.Unmarshal(all[start:], &line) != nil || line.Status == nil {
		return stdout, 0, false
	}
	return all[:start], statusOf(line.Status), true
}

// utf8Text makes a string that BSON takes: what is not UTF-8 is replaced.
func utf8Text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// demo runs the built-in plugin: each letter of the payload's commands is a line of stdout
// (a), a line of stderr (b) or a failure (c).
func demo(t *disbatch.Task) outcome {
	commands, _ := t.Params().DocumentOK()
	var stdout, stderr strings.Builder
	o := outcome{status: disbatch.StatusSucceeded}
	for _, letter := range disbatch.Text(commands.Lookup("commands")) {
		switch letter {
		case 'a':
			stdout.WriteString("a\n")
		case 'b':
			stderr.WriteString("b\n")
		case 'c':
			o.status = disbatch.StatusFailed
		}
	}
	o.stdout, o.stderr = stdout.String(), stderr.String()
	return o
}

// extended is a document as extended JSON, the form in which plugins and workers get it. One
// that another program wrote may hold what has no such form.
func extended(doc bson.Raw) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // the driver's way with lengths that are too small
			b, err = nil, fmt.Errorf("the task's document cannot be read: %v", p)
		}
	}()
	b, err = bson.MarshalExtJSON(doc, false, false)
	if err == nil && (!json.Valid(b) || bytes.Contains(b, []byte(`"$dbPointer"`)) && !faithful(doc)) {
		err = errors.New("it would be no JSON, or that of another document") // the driver escapes nothing in the name of a DBPointer
	}
	if err != nil {
		return nil, fmt.Errorf("the task's document cannot be said in JSON: %w", err)
	}
	return b, nil
}

// faithful says whether a document is the same when it has gone through its exact extended JSON.
func faithful(doc bson.Raw) bool {
	b, err := bson.MarshalExtJSON(doc, true, false)
	var again bson.D
	if err != nil || bson.UnmarshalExtJSON(b, true, &again) != nil {
		return false
	}
	same, err := bson.Marshal(again)
	return err == nil && bytes.Equal(same, doc)
}
