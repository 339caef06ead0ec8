package config_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
)

var must = sitetest.Must

// TestParse: relaxed JSON of the original, and an error for every kind of wrong value.
func TestParse(t *testing.T) {
	c, err := config.Parse([]byte(`{
	# where it is
	"mongohost": "db1:27017,db2", "database": "jobs", # a # in a comment
	"attributes": { "ssl": { "SSL_verify_mode": 0, }, "w": 1 },
	"auth": { "disbatchd": "a # b", "task_runner": "c\"#" },
	"plugins": [ "A::B", "C", ], "gfs": "auto", "unknown": [1, 2,],
	"activequeues": ["571f8951b75bf335634ec271"],
	"treadle_plugins": { "A::B": {"kind": "exec", "command": ["/bin/true"], "timeout": 1.5}, },
}
# the end`))
	must(t, err)
	if c.MongoHost != "db1:27017,db2" || c.Auth["disbatchd"] != "a # b" || c.Auth["task_runner"] != `c"#` || c.GFS.String() != "auto" ||
		len(c.Plugins) != 2 || c.Schema != 2018 || len(c.ActiveQueues) != 1 {
		t.Errorf("read as %+v", c)
	}
	if p := c.TreadlePlugins["A::B"]; p.Timeout.Duration() != 1500*time.Millisecond {
		t.Errorf("the plugin is %+v", p)
	}
	for text, want := range map[string]string{
		"{\n\"a\": 1,\n\"b\" 2}":                      "line 3",
		`{"gfs": "sometimes"}`:                        "say false, true or auto",
		`{"schema": 2017}`:                            "say 2016 or 2018",
		`{"treadle_plugins": {"A": {"kind": "x"}}}`:   "say exec, function or runner",
		`{"treadle_plugins": {"A!": {}}}`:             "a plugin's name",
		`{"treadle_plugins": {"A": {"kind":"exec"}}}`: "needs a command",
		`{"treadle_node": {"mtime": "never"}}`:        "say finish or claim",
	} {
		if _, err := config.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestDurationBounds: a duration that overflows does not pass at once, and one below 1 ns is not unlimited.
func TestDurationBounds(t *testing.T) {
	c, err := config.Parse([]byte(`{"treadle_plugins": {"A": {"kind": "function", "timeout": 1e300}, "B": {"kind": "function", "timeout": 1e-300}, "C": {"kind": "function"}},
		"treadle_node": {"reclaim_after": 9223372037}}`))
	must(t, err)
	for name, want := range map[string]time.Duration{"A": math.MaxInt64, "B": 1, "C": 0} {
		if p := c.TreadlePlugins[name]; p.Timeout.Duration() != want {
			t.Errorf("%v seconds are %v", p.Timeout, p.Timeout.Duration())
		}
	}
	if got := c.Node.ReclaimAfter.Duration(); got != math.MaxInt64 {
		t.Errorf("%v seconds are %v", c.Node.ReclaimAfter, got)
	}
}

// TestDefaults: a missing or null key has the default of the original.
func TestDefaults(t *testing.T) {
	f := func(text, gfs string, want config.File) {
		t.Helper()
		c, err := config.Parse([]byte(text))
		must(t, err)
		if c.MongoHost != want.MongoHost || c.Database != want.Database || c.TaskRunner != want.TaskRunner || c.GFS.String() != gfs {
			t.Errorf("%s is read as %+v", text, c)
		}
	}
	standard := config.File{MongoHost: "localhost:27017", Database: "disbatch", TaskRunner: "/usr/bin/task_runner"}
	f(`{}`, "auto", standard)
	f(`{"mongohost": null, "database": null, "task_runner": null, "gfs": null}`, "auto", standard)
	f(`{"gfs": false, "task_runner": "x"}`, "0", config.File{MongoHost: "localhost:27017", Database: "disbatch", TaskRunner: "x"})
}

// FuzzSiteConfig parses a configuration in the original's relaxed JSON. JSON stays unchanged, offsets stay the same,
// an error is one line, and accepted values are within their bounds.
func FuzzSiteConfig(f *testing.F) {
	for _, text := range []string{
		"{ # a test's\n\"mongohost\": \"a:1,b\", \"database\": \"x\",\n}", `{"attributes": {"ssl": {"SSL_verify_mode": 0,},}, "auth": {"a": "# \" \\"}, "plugins": ["A", ], "gfs": "auto"}`,
		`{"treadle_plugins": {"A::B": {"kind": "exec", "command": ["/bin/true"], "timeout": 1.5}}, "treadle_node": {"reclaim_after": 600, "mtime": "claim"}}`,
		`{"plugins": {"B": 1, "A": 2}, "activequeues": [{"$oid": "571f8951b75bf335634ec271"}], "schema": "2016", "treadle_web": {"listen": "a:1", "users": {"a": "b"}}}`,
		`{"gfs": true, "ignorequeues": "x", "log": {}}`, `{"a": 1, # }`, "{\"a\" 2}", "[,]", "{\"gfs\": [", "\"", "{\"treadle_plugins\":{\"A\":{\"kind\":\"function\",\"timeout\":1e300}}}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		plain := config.ToJSON(text)
		if len(plain) != len(text) || bytes.Count(plain, []byte("\n")) != bytes.Count(text, []byte("\n")) {
			t.Fatalf("%q becomes %q", text, plain)
		}
		if json.Valid(text) && !bytes.Equal(plain, text) {
			t.Fatalf("%q is JSON, and becomes %q", text, plain)
		}
		c, err := config.Parse(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !json.Valid(plain) || c.MongoHost == "" || c.Database == "" || c.Schema != 2016 && c.Schema != 2018 || c.Node.ReclaimAfter.Duration() < 0 {
			t.Fatalf("%q is read as %+v", text, c)
		}
		for name, p := range c.TreadlePlugins {
			if !config.IsPluginName(name) || (p.Timeout.Duration() > 0) != (p.Timeout > 0) || p.Timeout.Duration() < 0 {
				t.Fatalf("%q has the plugin %q: %+v with a time-out of %v", text, name, p, p.Timeout.Duration())
			}
		}
	})
}
