package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"treadle/loop/client"
	"treadle/loop/setting"
)

type configCmd struct {
	Check    configCheckCmd    `cmd:"" help:"Check a configuration file: everything that treadle serve would refuse."`
	Show     configShowCmd     `cmd:"" help:"Show the settings in effect, and where each comes from."`
	Defaults configDefaultsCmd `cmd:"" help:"Print a configuration file with all defaults."`
	Get      configGetCmd      `cmd:"" help:"Print a setting that clients may change."`
	Set      configSetCmd      `cmd:"" help:"Change such a setting."`
}

// Help implements kong.HelpProvider.
func (configCmd) Help() string {
	return `check, show and defaults are about the settings of treadle serve, in its configuration file. get and set are about those that clients of the Periodic protocol change while the server runs. Their keys: timeout (seconds a job may run, 600; 0: no limit, while submit --timeout 0 takes this setting), keepalive (seconds a connection may be silent, 300), lock-timeout (seconds a job waits for a lock, 300); poll-delay, revert-delay, max-patch and assign-wait are for old clients and change nothing. refusing is not 0 while the server takes no new jobs (1: its disk is nearly full), max-frame is its largest request in bytes; both are read only. An unknown key is an error.

	treadle config check /etc/treadle.toml
	treadle config show
	treadle config get timeout
	treadle config set timeout 2h`
}

type configGetCmd struct {
	Key string `arg:"" help:"Name of the setting, as timeout."`
}

// Run prints the setting.
func (g *configGetCmd) Run(c *cli, con *console) error {
	if err := checkNames(g.Key); err != nil {
		return err
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		value, err := server.ConfigGet(ctx, g.Key)
		switch {
		case err != nil:
			return err
		case value == 0 && !slices.Contains(settings, g.Key):
			return unknownSetting(server, g.Key)
		}
		_, err = fmt.Fprintln(con.out, value)
		return err
	})
}

type configSetCmd struct {
	Key   string `arg:"" help:"Name of the setting, as timeout."`
	Value string `arg:"" help:"New value: a number, or for a time also 90s, 5m or 1h30m."`
}

// Run changes the setting and reads it back: the protocol's reply does not say whether it was changed.
func (s *configSetCmd) Run(c *cli) error {
	if err := checkNames(s.Key); err != nil {
		return err
	}
	if slices.Contains(readOnly, s.Key) {
		return badUsage("%q is read only", s.Key)
	}
	wanted, err := s.value()
	if err != nil {
		return err
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		if err := server.ConfigSet(ctx, s.Key, wanted); err != nil {
			return err
		}
		value, err := server.ConfigGet(ctx, s.Key)
		if err == nil && (value != wanted || wanted == 0 && !slices.Contains(settings, s.Key)) {
			err = unknownSetting(server, s.Key)
		}
		return err
	})
}

// value reads the new value: a number, or a time in whole seconds for settings other than sizes of batches.
func (s *configSetCmd) value() (uint32, error) {
	if n, err := strconv.ParseUint(s.Value, 10, 32); err == nil {
		return uint32(n), nil
	}
	d, err := parseDuration(s.Value)
	switch {
	case strings.HasPrefix(s.Key, "max-"):
		return 0, badUsage("%q is no value of %q: write a number from 0 to %d", s.Value, s.Key, uint32(math.MaxUint32))
	case err != nil:
		return 0, badUsage("%q is no value of %q: write a number from 0 to %d, or a time as 90s, 5m or 1h30m", s.Value, s.Key, uint32(math.MaxUint32))
	}
	seconds, err := wholeSeconds(s.Key, d, math.MaxUint32)
	return uint32(seconds), err
}

// settings are the keys of the protocol in all of its versions, and Treadle's own. A server answers 0 both to an
// unknown key and to a key with the value 0.
var settings = []string{
	"timeout", "keepalive", "lock-timeout", "poll-delay", "poll-interval", "revert-delay", "revert-interval",
	"max-patch", "max-batch-size", "max-pool-size", "run-job-aggressive", "assign-wait", "refusing", "max-frame",
}

// readOnly are the settings that a client cannot change.
var readOnly = []string{"refusing", "max-frame"}

// changeRunning returns the error of a name that treadle serve does not take but treadle config set does, else nil.
func changeRunning(name string) error {
	if !slices.Contains(settings, name) || slices.Contains(readOnly, name) {
		return nil
	}
	return fmt.Errorf("%q is a setting of the running server: treadle config set %[1]s VALUE", name)
}

func unknownSetting(server *client.Client, key string) error {
	if slices.ContainsFunc(setting.Of(&serveCmd{}), func(s setting.Setting) bool { return s.Name == key }) {
		return noSuch("%q is a setting of treadle serve: change it in the file of --config, then treadle reload or start the server again", key)
	}
	for _, known := range settings {
		if distance(key, known) <= 2 {
			return noSuch("the server at %s does not know the setting %q, did you mean %q? (see treadle config --help)", server.Address(), key, known)
		}
	}
	return noSuch("the server at %s does not know the setting %q (see treadle config --help)", server.Address(), key)
}

// distance returns the edit distance of a and b: insertions, deletions, replacements and swaps of neighbours.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			other := 1
			if a[i] == b[j] {
				other = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+other)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
