package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Called as periodicd through a link, the program replaces the original's server for its scripts, units and container
// images: it serves Periodic alone, and takes -H, -p, PERIODIC_PORT and PERIODIC_PATH.

// originalName is the name of the original's server.
const originalName = "periodicd"

// The variables of the original's server and its container image. The original's clients read PERIODIC_PORT too, as
// the address of their server, so treadle serve ignores both.
const (
	hostVariable = "PERIODIC_PORT"
	pathVariable = "PERIODIC_PATH"
)

// aloneFlags are the arguments with which treadle serve serves Periodic alone; later arguments win.
var aloneFlags = []string{"serve", "--gloom-masters=off", "--gloom-slaves=off", "--dwork=off", "--kts46=off", "--kts46-json=off", "--http=off"}

// original are the flags of periodicd that take a value, by each of their names.
var original = map[string]string{
	"-H": "host", "--host": "host", "-p": "path", "--path": "path", "--log": "log",
	"--name": "ignored", "--max-cache-size": "ignored", "--push-task-size": "ignored", "--sched-task-size": "ignored", "--rsa-public-path": "ignored",
	"--hook": "off", "--auth-file": "off", "--rsa-private-path": "off",
}

// logLevels maps the original's log levels to Treadle's.
var logLevels = map[string]string{"DEBUG": "debug", "INFO": "info", "NOTICE": "info", "WARNING": "warn"}

// periodicdArgs turns a command line of periodicd into one of treadle.
func periodicdArgs(args []string, env func(string) string) ([]string, error) {
	values, rest := map[string]string{"host": env(hostVariable), "path": env(pathVariable)}, []string(nil)
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		if short := name[:min(len(name), 2)]; name != short && (short == "-H" || short == "-p") {
			name, value, inline = short, args[i][2:], true
		}
		meaning := original[name]
		switch {
		case meaning == "":
			rest = append(rest, args[i])
			continue
		case !inline && i+1 == len(args):
			return nil, badUsage("%s needs a value", name)
		case !inline:
			i++
			value = args[i]
		}
		if meaning == "off" && value != "" {
			return nil, badUsage("%s %q: Treadle has no such thing; without it, or with \"\", it is off as with the original", name, value)
		}
		values[meaning] = value
	}
	out := slices.Clone(aloneFlags)
	if host := values["host"]; host != "" {
		address, err := periodicdAddress(host)
		if err != nil {
			return nil, err
		}
		out = append(out, "--periodic="+address)
	}
	switch path := values["path"]; path {
	case "":
	case ":memory:":
		out = append(out, "--data=none")
	default:
		return nil, badUsage("the store %q is the original's, which Treadle does not open: have the original write its jobs (periodic dump jobs), leave -p and %s out and name a directory with --data instead, then load them (treadle load jobs)", path, pathVariable)
	}
	if level := values["log"]; level != "" {
		ours := logLevels[level]
		if ours == "" {
			ours = "error"
		}
		out = append(out, "--log-level="+ours)
	}
	return append(out, rest...), nil
}

// periodicdAddress turns an address of the original into one of --periodic: an address without a scheme is a path.
func periodicdAddress(host string) (string, error) {
	switch {
	case strings.HasPrefix(host, "tcp://"):
		return host, nil
	case strings.HasPrefix(host, "udp:"):
		return "", badUsage("-H %s: Treadle serves tcp://HOST:PORT and unix:///PATH", host)
	}
	path, err := filepath.Abs(strings.TrimPrefix(host, "unix://"))
	if err != nil {
		return "", fmt.Errorf("-H %s: %w", host, err)
	}
	return "unix://" + path, nil
}
