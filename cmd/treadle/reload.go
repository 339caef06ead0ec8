package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"treadle/loop"
	"treadle/loop/client"
	"treadle/loop/setting"
)

// runningServer is a server with the configuration that it runs with. It implements loop.Configuration.
type runningServer struct {
	server  *loop.Server // nil: a node of a cluster that does not lead
	manager *serviceManager
	log     *slog.Logger
	level   *slog.LevelVar

	mu sync.Mutex
	c  *cli // as parsed from the configuration in effect
}

// Options implements loop.ClusterHost: the settings of the last reload.
func (r *runningServer) Options() (loop.Options, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, _, err := r.c.Serve.completeOptions(r.c.sources, r.log)
	o.Admin.Configuration = r
	return o, err
}

// SetServer implements loop.ClusterHost.
func (r *runningServer) SetServer(s *loop.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = s
}

// live reports whether a restart would not help.
func (r *runningServer) live() bool {
	r.mu.Lock()
	server := r.server
	r.mu.Unlock()
	return server == nil || server.Live()
}

// drain returns --drain.
func (r *runningServer) drain() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.c.Serve.Drain
}

// notifyHangups returns the SIGHUPs until stop is called. Those that come during a reload count as one.
func notifyHangups() (hangups chan os.Signal, stop func()) {
	hangups = make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups, func() {
		signal.Stop(hangups)
		close(hangups)
	}
}

// follow reloads at each signal until the channel is closed. The log says what comes of it.
func (r *runningServer) follow(hangups <-chan os.Signal) {
	for range hangups {
		_, _ = r.Reload()
	}
}

// Settings implements loop.Configuration.
func (r *runningServer) Settings() []client.Setting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.c.settings()
}

// defaultText matches the default in the help of a setting that other settings, or the machine, decide.
var defaultText = regexp.MustCompile(`\(default: ([^()]*)\)`)

// settings returns the settings of treadle serve that are in effect, each with where it comes from.
func (c *cli) settings() (all []client.Setting) {
	effective := c.Serve
	if o, _, err := effective.completeOptions(c.sources, slog.New(slog.DiscardHandler)); err == nil {
		effective.Options, _ = o.Effective() // the server has found it right
	}
	given := setting.Of(&c.Serve)
	for i, s := range setting.Of(&effective) {
		one := client.Setting{Name: s.Name, Value: s.Shown(), Source: "default", Reload: s.Has("reload")}
		if one.Value == "" { // of addresses, off has become none
			one.Value = given[i].Shown()
		}
		if m := defaultText.FindStringSubmatch(s.Tag.Get("help")); one.Value == "" && m != nil {
			one.Value = m[1]
		}
		if from, ok := c.sources.of[s.Name]; ok {
			one.Source = from.String()
		}
		all = append(all, one)
	}
	return all
}

// Reload implements loop.Configuration. One reload runs at a time.
func (r *runningServer) Reload() ([]client.SettingChange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.manager.reloading()
	defer r.manager.ready(serving)
	changes, err := r.reload()
	if err != nil {
		r.log.Error("the configuration is not taken, and nothing has changed", "error", oneLine(err.Error()))
		return nil, err
	}
	for _, c := range changes {
		r.log.Info("the configuration has changed", "setting", c.Name, "before", c.Before, "after", c.After)
	}
	r.log.Info("the configuration is read again", "changes", len(changes))
	return changes, nil
}

// reload reads the settings again and applies those that can change while the server runs. It changes nothing if one of
// them is wrong, or needs a restart.
func (r *runningServer) reload() ([]client.SettingChange, error) {
	next, err := parseServe(r.c.args)
	if err != nil {
		return nil, err
	}
	changes, err := r.c.compare(next)
	if err != nil {
		return nil, err
	}
	switch {
	case len(changes) == 0 && r.server == nil:
		return nil, nil
	case len(changes) == 0:
		return nil, r.server.ReloadCertificates()
	case r.server == nil:
		return nil, errors.New("this node does not lead: reload the configuration of the leader, and restart this node for its own")
	}
	o, _, err := next.Serve.completeOptions(next.sources, r.log)
	if err == nil {
		err = r.server.Reload(o)
	}
	if err != nil {
		return nil, next.sources.blameEach(err)
	}
	r.level.Set(levelOf(next.Serve.LogLevel))
	r.c = next
	return changes, nil
}

// parseServe reads a command line of treadle serve, with its file and variables.
func parseServe(args []string) (*cli, error) {
	c := &cli{args: args}
	parser, err := newParser(c, &console{}, "serve")
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		return nil, usage(err)
	}
	return c, nil
}

// compare returns what differs in a later configuration. Settings that a server cannot change are an error that names
// them.
func (c *cli) compare(next *cli) (changes []client.SettingChange, err error) {
	var fixed []string
	for _, s := range setting.Changes(&c.Serve, &next.Serve) {
		changes = append(changes, client.SettingChange{Name: s.Name, Before: s.Before, After: s.After})
		if !s.Reloads {
			fixed = append(fixed, s.Name)
		}
	}
	if fixed != nil {
		return nil, fmt.Errorf("a reload cannot change %s: restart the server, or take that back", strings.Join(fixed, ", "))
	}
	before, after := c.sources.tables(), next.sources.tables()
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range sortedKeys(names) {
		if !reflect.DeepEqual(before[name], after[name]) {
			changes = append(changes, client.SettingChange{Name: name, Before: before[name].text, After: after[name].text})
		}
	}
	return changes, nil
}

// table is a rule or a cron entry of a file.
type table struct {
	text  string // for messages; it has no workload
	value any
}

// tables returns the rules and cron entries by the names of their tables.
func (c *sources) tables() map[string]table {
	all := make(map[string]table)
	for _, rule := range c.rules {
		var values []string
		for _, key := range sortedKeys(rule.Values) {
			values = append(values, key+"="+rule.Values[key])
		}
		all[fmt.Sprintf("%s.%q", queueTable, rule.Pattern)] = table{strings.Join(values, " "), rule}
	}
	for _, e := range c.cron {
		text := fmt.Sprintf("%s for %s, %s", e.Schedule, e.Queue, counted(len(e.Workload), "byte"))
		all[fmt.Sprintf("%s.%q", cronTable, e.Name)] = table{text, e}
	}
	return all
}

// reloadCmd has a server read its configuration again.
type reloadCmd struct {
	JSON bool `name:"json" help:"Print JSON, one object a line."`
}

// Help implements kong.HelpProvider.
func (reloadCmd) Help() string {
	return `The server reads its file and variables again, as at SIGHUP, and takes all changes or none: an error in the file, or a change that needs a restart, leaves everything as it is, with exit code 2. treadle serve --help says which settings a reload changes; rules for queues and cron entries of the file are changed, too.

	treadle config check /etc/treadle.toml && treadle reload`
}

// Run prints what has changed.
func (r *reloadCmd) Run(c *cli, con *console) error {
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		changes, err := a.Reload(ctx)
		switch {
		case err != nil:
			return err
		case r.JSON:
			return writeLines(con.out, changes)
		case len(changes) == 0:
			return r.sayUnchanged(ctx, a, con)
		}
		lines := [][]string{{"SETTING", "BEFORE", "AFTER"}}
		for _, s := range changes {
			lines = append(lines, []string{s.Name, printable(s.Before), printable(s.After)})
		}
		return align(con.out, lines, 3)
	})
}

// sayUnchanged prints the outcome of a reload without changes, with the reason if it can have none.
func (r *reloadCmd) sayUnchanged(ctx context.Context, a *client.Admin, con *console) error {
	all, err := a.Settings(ctx)
	if err != nil {
		return err
	}
	text := "nothing has changed"
	if slices.ContainsFunc(all, func(s client.Setting) bool { return s.Name == "config" && s.Source == "default" }) {
		text += ": the server was started without --config, so there is no file to read again"
	}
	_, err = fmt.Fprintln(con.out, text)
	return err
}
