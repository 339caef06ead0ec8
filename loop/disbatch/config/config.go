package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// File is a parsed config.json of the original with the additional keys of Treadle. Parse ignores keys that have no
// field here.
type File struct {
	Path string `json:"-"` // path of the file; the node passes it to task runners

	MongoHost  string            `json:"mongohost"` // host, host:port, several with commas, or a mongodb:// address
	Database   string            `json:"database"`
	Attributes json.RawMessage   `json:"attributes"` // options of the original's driver: ssl, username, password and others
	Auth       map[string]string `json:"auth"`       // passwords by component; the component's name is the user name

	TaskRunner    string          `json:"task_runner"` // the original's runner, for plugins without an entry in treadle_plugins
	Quiet         Truth           `json:"quiet"`       // start the task runner with --quiet
	Testing       Truth           `json:"testing"`     // start the task runner with --testing
	GFS           GFS             `json:"gfs"`
	WebRoot       string          `json:"web_root"`
	Plugins       names           `json:"plugins"`
	Log           json.RawMessage `json:"log"`
	Monitoring    Truth           `json:"monitoring"`     // GET /monitoring checks the site
	Balance       json.RawMessage `json:"balance"`        // settings of queuebalanced, a program of the original
	WebExtensions names           `json:"web_extensions"` // extensions of the original's web server
	ActiveQueues  names           `json:"activequeues"`   // ids; unless empty, nodes serve these queues only
	IgnoreQueues  names           `json:"ignorequeues"`   // ids; nodes do not serve these queues

	TreadlePlugins map[string]Plugin `json:"treadle_plugins"`
	Schema         schema            `json:"schema"` // dialect of new queues: 2016 or 2018

	// Node holds settings of the node that the original does not have.
	Node struct {
		ReclaimAfter seconds `json:"reclaim_after"` // orphan the running tasks of a node whose entry has not changed for this long; 0: never
		ReclaimOwn   *Truth  `json:"reclaim_own"`   // a starting node orphans its running tasks that no process runs; default true
		MTime        string  `json:"mtime"`         // mtime of a finished task: finish, the time of its end, or claim, the time of its claim
	} `json:"treadle_node"`

	// Web holds settings of the command interface that the original does not have.
	Web struct {
		Listen string            `json:"listen"` // host:port, default 127.0.0.1:8080
		Users  map[string]string `json:"users"`  // passwords by user name; unless empty, every request needs basic authentication
	} `json:"treadle_web"`

	// Dial connects to the database; nil dials TCP. A simulation sets it.
	Dial dialer `json:"-"`

	named map[string]bool // keys that the file sets; Overlay leaves them
}

// Plugin describes how to run a plugin.
type Plugin struct {
	Kind      string            `json:"kind"`       // exec, function or runner
	Command   []string          `json:"command"`    // exec and runner: program and arguments
	Function  string            `json:"function"`   // function: the server's queue that the task becomes a job in
	Timeout   seconds           `json:"timeout"`    // of a task; 0: none
	Env       map[string]string `json:"env"`        // environment variables in addition to the runner's own
	Dir       string            `json:"dir"`        // working directory
	MaxOutput int               `json:"max_output"` // bytes to keep of each stdout and stderr
	Class     string            `json:"-"`          // runner: the Perl class, an argument of 2016 runners
}

// Kinds of plugins: a command, a function of the server's workers, and a task runner of the original.
const (
	KindExec       = "exec"
	KindFunction   = "function"
	KindTaskRunner = "runner"
)

// Components of the original. Each is a user of the database with its password in Auth.
const (
	ComponentNode   = "disbatchd"
	ComponentWeb    = "disbatch_web"
	ComponentRunner = "task_runner"
)

// Defaults of the configuration.
const (
	defaultMongoHost  = "localhost:27017"
	defaultDatabase   = "disbatch"
	defaultTaskRunner = "/usr/bin/task_runner" // of the original's packages
)

// pluginName matches the plugin names that the original accepts.
var pluginName = regexp.MustCompile(`^[\w:]+$`)

// Read reads and checks a configuration file.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration of Disbatch: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.Path = path
	return c, nil
}

// Parse reads and checks the text of a configuration. An error is one line.
func Parse(text []byte) (*File, error) {
	text = toJSON(text)
	c := &File{Schema: 2018, GFS: gfsAuto, named: make(map[string]bool)}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return nil, located(text, err)
	}
	for key, value := range keys {
		c.named[key] = string(value) != "null"
	}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, wrongKey(keys, located(text, err))
	}
	c.MongoHost = cmp.Or(c.MongoHost, defaultMongoHost)
	c.Database = cmp.Or(c.Database, defaultDatabase)
	c.TaskRunner = cmp.Or(c.TaskRunner, defaultTaskRunner)
	return c, c.validate()
}

// located adds the line number to an error of encoding/json and rewords a type error.
func located(text []byte, err error) error {
	line := func(offset int64) int { return 1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte("\n")) }
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: %w", line(syntax.Offset), err)
	case errors.As(err, &kind):
		return fmt.Errorf("line %d: %s: a value of the kind %q does not fit here", line(kind.Offset), cmp.Or(kind.Field, "the configuration"), kind.Value)
	}
	return err
}

// wrongKey adds the name of the faulty key to an error that does not contain it.
func wrongKey(keys map[string]json.RawMessage, err error) error {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		alone, merr := json.Marshal(map[string]json.RawMessage{key: keys[key]})
		if merr == nil && json.Unmarshal(alone, new(File)) != nil && !strings.Contains(err.Error(), key) {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return err
}

// validate returns an error for the first plugin or setting of the node that cannot work.
func (f *File) validate() error {
	for name, p := range f.TreadlePlugins {
		fault := ""
		switch {
		case !IsPluginName(name):
			fault = "a plugin's name is letters, digits, _ and :"
		case (p.Kind == KindExec || p.Kind == KindTaskRunner) && (len(p.Command) == 0 || p.Command[0] == ""):
			fault = "a plugin of the kind " + p.Kind + " needs a command, a list of a program and its arguments"
		case p.Kind == KindFunction && len(p.Function) > 255:
			fault = "the name of a function has at most 255 bytes"
		case p.Kind != KindExec && p.Kind != KindTaskRunner && p.Kind != KindFunction:
			fault = fmt.Sprintf("kind is %q: say exec, function or runner", p.Kind)
		case p.Timeout < 0 || p.MaxOutput < 0:
			fault = "timeout and max_output are not negative"
		}
		if fault != "" {
			return fmt.Errorf("treadle_plugins: %q: %s", name, fault)
		}
	}
	if f.Node.ReclaimAfter < 0 {
		return errors.New("treadle_node: reclaim_after is a number of seconds, 0 for never")
	}
	if f.Node.MTime != "" && f.Node.MTime != "finish" && f.Node.MTime != "claim" {
		return fmt.Errorf("treadle_node: mtime is %q: say finish or claim", f.Node.MTime)
	}
	return nil
}

// DemoPlugin is the built-in plugin for trials.
const DemoPlugin = "Disbatch::Plugin::Demo"

// PluginNames returns the sorted plugin names that a new queue may have: those of plugins and treadle_plugins, or
// DemoPlugin if both are empty.
func (f *File) PluginNames() []string {
	all := slices.Clone([]string(f.Plugins))
	for name := range f.TreadlePlugins {
		all = append(all, name)
	}
	if len(all) == 0 {
		all = []string{DemoPlugin}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// IsPluginName reports whether the original accepts a text as the name of a plugin.
func IsPluginName(text string) bool { return pluginName.MatchString(text) }

// Overlay returns a copy of the configuration with values for keys that the file does not set, or f itself if value is
// nil. value returns the JSON of a key, or nil without a value. The copy is complete even with an error: a key with a
// wrong value keeps the file's.
func (f *File) Overlay(value func(key string) []byte) (*File, error) {
	if value == nil {
		return f, nil
	}
	o := *f
	var faults []error
	for _, key := range []struct {
		name string
		into any
	}{
		{"plugins", &o.Plugins}, {"web_root", &o.WebRoot}, {"activequeues", &o.ActiveQueues},
		{"ignorequeues", &o.IgnoreQueues}, {"task_runner", &o.TaskRunner}, {"log", &o.Log},
	} {
		if f.named[key.name] {
			continue
		}
		text := value(key.name)
		if text == nil {
			continue
		}
		if err := json.Unmarshal(text, key.into); err != nil {
			faults = append(faults, fmt.Errorf("collection config: %s: %w", key.name, err))
		}
	}
	return &o, errors.Join(faults...)
}
