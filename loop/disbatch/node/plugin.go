package node

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// pluginOf returns the plugin of a name, or the reason why it cannot run here. It returns errLookupPending while the
// plugin is looked up.
func pluginOf(c *config.File, name string, schema store.Schema, lookUp lookupFunc) (config.Plugin, error) {
	if p, ok := c.TreadlePlugins[name]; ok {
		if p.Kind == config.KindFunction && p.Function == "" {
			p.Function = name
		}
		p.Class = name
		return p, checkProgram(&p)
	}
	p, err := taskRunnerPlugin(c, name, schema, lookUp)
	if err != nil && !errors.Is(err, errLookupPending) && name == config.DemoPlugin {
		return config.Plugin{Kind: kindDemo}, nil
	}
	return p, err
}

// taskRunnerPlugin returns the plugin that starts the original's task runner, for a plugin without an entry in
// treadle_plugins.
func taskRunnerPlugin(c *config.File, name string, schema store.Schema, lookUp lookupFunc) (config.Plugin, error) {
	unknown := func(err error) (config.Plugin, error) {
		return config.Plugin{}, fmt.Errorf("the plugin %s cannot be run: give it an entry in treadle_plugins, or a task_runner that loads it: %w", name, err)
	}
	if c.TaskRunner == "" || lookUp == nil {
		return unknown(errors.New("there is no task_runner here"))
	}
	p := config.Plugin{Kind: config.KindTaskRunner, Command: []string{c.TaskRunner}, Class: name}
	if err := checkProgram(&p); err != nil {
		return unknown(err)
	}
	class, err := lookUp(c.TaskRunner, name, schema)
	switch {
	case errors.Is(err, errNoPerl) && slices.Contains(c.Plugins, name):
		return p, nil
	case errors.Is(err, errLookupPending):
		return config.Plugin{}, err
	case err != nil:
		return unknown(fmt.Errorf("%s: %w", c.TaskRunner, err))
	}
	p.Class = class
	return p, nil
}

// checkProgram returns an error if the program of a plugin does not exist on this host.
func checkProgram(p *config.Plugin) error {
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
