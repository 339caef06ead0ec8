package disbatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/mongo/options"
)

// Config is the original's config.json, with Treadle's own keys beside it. Keys that are
// not in this list are the original's business and are ignored.
type Config struct {
	Path string `json:"-"` // where it was read, for the runners that are started with it

	MongoHost  string            `json:"mongohost"` // host, host:port, several with commas, or a mongodb:// address
	Database   string            `json:"database"`
	Attributes json.RawMessage   `json:"attributes"` // of the original's driver: ssl, username, password and others
	Auth       map[string]string `json:"auth"`       // passwords by component; the component's name is the user

	TaskRunner    string          `json:"task_runner"` // the original's runner, for plugins that have no entry of their own
	Quiet         Truth           `json:"quiet"`       // the runner is called with --quiet
	Testing       Truth           `json:"testing"`     // the runner is called with --testing
	GFS           GFS             `json:"gfs"`
	WebRoot       string          `json:"web_root"`
	Plugins       Names           `json:"plugins"`
	Log           json.RawMessage `json:"log"`
	Monitoring    Truth           `json:"monitoring"`     // GET /monitoring looks
	Balance       json.RawMessage `json:"balance"`        // settings of queue balance, a program of the original's
	WebExtensions Names           `json:"web_extensions"` // of the original's web; here they are there, or nothing
	ActiveQueues  Names           `json:"activequeues"`   // ids; if there are any, only these queues are served
	IgnoreQueues  Names           `json:"ignorequeues"`   // ids

	TreadlePlugins map[string]PluginConfig `json:"treadle_plugins"`
	Schema         Schema                  `json:"schema"` // dialect of new queues; 2018 unless it says 2016

	// Node are settings of the node that the originals do not have.
	Node struct {
		ReclaimAfter Seconds `json:"reclaim_after"` // without a sign of a node until its running tasks are orphaned, 0 is never
		ReclaimOwn   *Truth  `json:"reclaim_own"`   // a node that starts orphans running tasks of its own that nothing runs; true if it is missing
		MTime        string  `json:"mtime"`         // of a finished task: finish, the time it ended, or claim, the time it was claimed
	} `json:"treadle_node"`

	// Web are settings of the command interface that the original does not have.
	Web struct {
		Listen string            `json:"listen"` // host:port, 127.0.0.1:8080 if it is empty
		Users  map[string]string `json:"users"`  // passwords by name; if there are any, every request needs one (basic authentication)
	} `json:"treadle_web"`

	// Dial connects to the database of a simulation; nil is TCP.
	Dial options.ContextDialer `json:"-"`

	named map[string]bool // the keys that the file has: it wins over the config collection
}

// PluginConfig says how a plugin is run.
type PluginConfig struct {
	Kind      string            `json:"kind"`       // exec, function or runner
	Command   []string          `json:"command"`    // of exec and runner: a program and its arguments
	Function  string            `json:"function"`   // of function: the queue of the server that the task becomes a job of
	Timeout   Seconds           `json:"timeout"`    // that a task may take, 0 is for ever
	Env       map[string]string `json:"env"`        // added to the environment
	Dir       string            `json:"dir"`        // working directory
	MaxOutput int               `json:"max_output"` // bytes kept of stdout and of stderr
	Class     string            `json:"-"`          // of runner: the Perl class, which runners of 2016 are told
}

// Kinds of plugins.
const (
	KindExec     = "exec"
	KindFunction = "function"
	KindRunner   = "runner"
)

// Schema is the dialect of a queue's documents.
type Schema int

// The dialects: of the design text, and of the last release.
const (
	Schema2016 Schema = 2016
	Schema2018 Schema = 2018
)

// GFS says when a task's output goes to GridFS.
type GFS int

// Values of GFS: when the document would be too large for the database, always, or when
// the output is over 15 MiB. GFSNever and GFSAuto differ in nothing but name, since the output of a
// task is not to be lost.
const (
	GFSNever GFS = iota
	GFSAlways
	GFSAuto
)

// ParseGFS reads a value as the original writes it: false, true, auto, 0, 1, null.
func ParseGFS(text string) (GFS, error) {
	switch strings.Trim(text, `"`) {
	case "", "false", "0", "no":
		return GFSNever, nil
	case "true", "1", "yes":
		return GFSAlways, nil
	case "auto", "null":
		return GFSAuto, nil
	}
	return GFSNever, fmt.Errorf("gfs is %s: say false, true or auto", text)
}

// String is the value as a task runner takes it.
func (g GFS) String() string { return [...]string{"0", "1", "auto"}[g] }

// UnmarshalJSON implements json.Unmarshaler.
func (g *GFS) UnmarshalJSON(text []byte) (err error) {
	*g, err = ParseGFS(string(text))
	return err
}

// Truth is what Perl takes for true: true, a number but 0, and any text but "" and "0".
type Truth bool

// UnmarshalJSON implements json.Unmarshaler.
func (t *Truth) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "false", "null", "0", `""`, `"0"`:
		*t = false
	default:
		*t = true
	}
	return nil
}

// Names is a list of names: an array, the keys of an object, or one string.
type Names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *Names) UnmarshalJSON(text []byte) error {
	var list []any
	var object map[string]any
	var one string
	*n = nil
	switch {
	case json.Unmarshal(text, &list) == nil:
		for _, e := range list {
			switch e := e.(type) {
			case string:
				*n = append(*n, e)
			case map[string]any:
				id, _ := e["$oid"].(string)
				*n = append(*n, id)
			default:
				return fmt.Errorf("%s is no list of names", text)
			}
		}
	case json.Unmarshal(text, &object) == nil:
		for name := range object {
			*n = append(*n, name)
		}
		slices.Sort(*n)
	case json.Unmarshal(text, &one) == nil:
		if one != "" {
			*n = Names{one}
		}
	default:
		return fmt.Errorf("%s is no list of names", text)
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler: 2016, 2018, or one of them as a string.
func (s *Schema) UnmarshalJSON(text []byte) error {
	switch string(bytes.Trim(text, `"`)) {
	case "2016":
		*s = Schema2016
	case "2018", "null", "":
		*s = Schema2018
	default:
		return fmt.Errorf("schema is %s: say 2016 or 2018", text)
	}
	return nil
}

// Defaults of the configuration.
const (
	defaultMongoHost  = "localhost:27017"
	defaultDatabase   = "disbatch"
	defaultTaskRunner = "/usr/bin/task_runner" // where the original's packages put it
)

// pluginName is what the original takes for the name of a plugin.
var pluginName = regexp.MustCompile(`^[\w:]+$`)

// ReadConfig reads a configuration file.
func ReadConfig(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration of Disbatch: %w", err)
	}
	c, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.Path = path
	return c, nil
}

// ParseConfig reads the text of a configuration and checks it.
func ParseConfig(text []byte) (*Config, error) {
	text = strict(text)
	c := &Config{Schema: Schema2018, GFS: GFSAuto, named: make(map[string]bool)}
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

// located adds the line to an error of encoding/json, and says a wrong type in words.
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

// wrongKey adds the key to an error of reading a configuration that does not name it.
func wrongKey(keys map[string]json.RawMessage, err error) error {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		alone, merr := json.Marshal(map[string]json.RawMessage{key: keys[key]})
		if merr == nil && json.Unmarshal(alone, new(Config)) != nil && !strings.Contains(err.Error(), key) {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return err
}

func (c *Config) validate() error {
	for name, p := range c.TreadlePlugins {
		fault := ""
		switch {
		case !pluginName.MatchString(name):
			fault = "a plugin's name is letters, digits, _ and :"
		case (p.Kind == KindExec || p.Kind == KindRunner) && (len(p.Command) == 0 || p.Command[0] == ""):
			fault = "a plugin of the kind " + p.Kind + " needs a command, a list of a program and its arguments"
		case p.Kind == KindFunction && len(p.Function) > 255:
			fault = "the name of a function has at most 255 bytes"
		case p.Kind != KindExec && p.Kind != KindRunner && p.Kind != KindFunction:
			fault = fmt.Sprintf("kind is %q: say exec, function or runner", p.Kind)
		case p.Timeout < 0 || p.MaxOutput < 0:
			fault = "timeout and max_output are not negative"
		}
		if fault != "" {
			return fmt.Errorf("treadle_plugins: %q: %s", name, fault)
		}
	}
	if c.Node.ReclaimAfter < 0 {
		return errors.New("treadle_node: reclaim_after is a number of seconds, 0 for never")
	}
	if c.Node.MTime != "" && c.Node.MTime != "finish" && c.Node.MTime != "claim" {
		return fmt.Errorf("treadle_node: mtime is %q: say finish or claim", c.Node.MTime)
	}
	return nil
}

// Seconds is a setting of so many.
type Seconds float64

// Duration returns the setting as a duration. Less than a clock can tell is not nothing, which would mean for ever; and more
// than it can count, which turned negative would mean at once, is as much as it can.
func (s Seconds) Duration() time.Duration {
	switch nanos := float64(s) * float64(time.Second); {
	case s > 0 && nanos < 1:
		return 1
	case nanos >= math.MaxInt64:
		return math.MaxInt64
	default:
		return time.Duration(nanos)
	}
}

// DemoPlugin is the plugin that is built in, for trials.
const DemoPlugin = "Disbatch::Plugin::Demo"

// PluginNames returns the names that queues may be created with: those of plugins and of
// treadle_plugins, or the built-in one if there are none.
func (c *Config) PluginNames() []string {
	names := slices.Clone([]string(c.Plugins))
	for name := range c.TreadlePlugins {
		names = append(names, name)
	}
	if len(names) == 0 {
		names = []string{DemoPlugin}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
