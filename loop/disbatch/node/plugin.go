package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// kindDemo is the kind of DemoPlugin. No configuration has it.
const kindDemo = "demo"

// Values of a task's stdout if its plugin has not run or has not ended. stderr holds the reason.
const (
	unableToStart    = "Unable to start"
	unableToComplete = "Unable to complete"
)

// pluginOf returns the plugin of a name, or the reason why it cannot run here. It returns errLoading during a look-up of load.
func pluginOf(c *config.File, name string, schema store.Schema, load loads) (config.Plugin, error) {
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

// delegated returns the plugin that starts the original's task runner, for a plugin without an entry in treadle_plugins.
func delegated(c *config.File, name string, schema store.Schema, load loads) (config.Plugin, error) {
	unknown := func(err error) (config.Plugin, error) {
		return config.Plugin{}, fmt.Errorf("the plugin %s cannot be run: give it an entry in treadle_plugins, or a task_runner that loads it: %w", name, err)
	}
	if c.TaskRunner == "" || load == nil {
		return unknown(errors.New("there is no task_runner here"))
	}
	p := config.Plugin{Kind: config.KindRunner, Command: []string{c.TaskRunner}, Class: name}
	if err := available(&p); err != nil {
		return unknown(err)
	}
	class, err := load(c.TaskRunner, name, schema)
	switch {
	case errors.Is(err, errNoPerl) && slices.Contains(c.Plugins, name):
		return p, nil
	case err == errLoading:
		return config.Plugin{}, err
	case err != nil:
		return unknown(fmt.Errorf("%s: %w", c.TaskRunner, err))
	}
	p.Class = class
	return p, nil
}

// available returns an error if the program of a plugin does not exist on this host.
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

// ended returns the end of a task without a result of its plugin.
func ended(stdout string, reason error) store.Outcome {
	return store.Outcome{Status: store.StatusFailed, Stdout: stdout, Stderr: reason.Error()}
}

// statusOf returns the status for a number of a plugin. A number that is not positive means failed.
func statusOf(number json.RawMessage) int {
	var n json.Number
	if json.Unmarshal(number, &n) == nil {
		if i, err := n.Int64(); err == nil && i > 0 && i <= 1<<31-1 {
			return int(i)
		}
	}
	return store.StatusFailed
}

// parseResult reads the result of a worker: an object with status, stdout and stderr. Other bytes are the stdout of a task that has
// succeeded.
func parseResult(data []byte) store.Outcome {
	var r struct{ Status, Stdout, Stderr json.RawMessage }
	if json.Unmarshal(data, &r) != nil || r.Status == nil {
		return store.Outcome{Status: store.StatusSucceeded, Stdout: utf8Text(data), Stderr: ""}
	}
	return store.Outcome{Status: statusOf(r.Status), Stdout: outputOf(r.Stdout), Stderr: outputOf(r.Stderr)}
}

// outputOf returns the text of a JSON string, or the JSON of another value.
func outputOf(v json.RawMessage) string {
	var s string
	if v == nil || string(v) == "null" || json.Unmarshal(v, &s) == nil {
		return s
	}
	return utf8Text(v)
}

// statusLine removes the last line of a plugin's stdout if it is an object with a status.
func statusLine(stdout []byte) (rest []byte, status int, ok bool) {
	all := bytes.TrimRight(stdout, " \t\r\n")
	start := bytes.LastIndexByte(all, '\n') + 1
	var line struct{ Status json.RawMessage }
	if start == len(all) || all[start] != '{' || json.Unmarshal(all[start:], &line) != nil || line.Status == nil {
		return stdout, 0, false
	}
	return all[:start], statusOf(line.Status), true
}

// utf8Text returns valid UTF-8 for BSON. It replaces invalid bytes.
func utf8Text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// demo runs the built-in plugin. Each letter of the payload's field commands writes a line to stdout (a) or stderr (b), or fails the
// task (c).
func demo(t *store.Task) store.Outcome {
	commands, _ := t.Params().DocumentOK()
	var stdout, stderr strings.Builder
	o := store.Outcome{Status: store.StatusSucceeded}
	for _, letter := range store.Text(commands.Lookup("commands")) {
		switch letter {
		case 'a':
			stdout.WriteString("a\n")
		case 'b':
			stderr.WriteString("b\n")
		case 'c':
			o.Status = store.StatusFailed
		}
	}
	o.Stdout, o.Stderr = stdout.String(), stderr.String()
	return o
}

// extended returns a document as extended JSON, the form that plugins and workers receive. It fails for a damaged document and for
// values without such a form.
func extended(doc bson.Raw) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // the driver panics on lengths that are too small
			b, err = nil, fmt.Errorf("the task's document cannot be read: %v", p)
		}
	}()
	b, err = bson.MarshalExtJSON(doc, false, false)
	if err == nil && (!json.Valid(b) || bytes.Contains(b, []byte(`"$dbPointer"`)) && !faithful(doc)) {
		err = errors.New("it would be no JSON, or that of another document") // the driver does not escape the name of a DBPointer
	}
	if err != nil {
		return nil, fmt.Errorf("the task's document cannot be said in JSON: %w", err)
	}
	return b, nil
}

// faithful reports whether canonical extended JSON of a document converts back to the same document.
func faithful(doc bson.Raw) bool {
	b, err := bson.MarshalExtJSON(doc, true, false)
	var again bson.D
	if err != nil || bson.UnmarshalExtJSON(b, true, &again) != nil {
		return false
	}
	same, err := bson.Marshal(again)
	return err == nil && bytes.Equal(same, doc)
}
