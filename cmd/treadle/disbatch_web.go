package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"treadle/loop/disbatch/web"
)

type disbatchWebCmd struct {
	Config    string   `default:"/etc/disbatch/config.json" placeholder:"FILE" help:"The original's config.json (default: ${default})."`
	Listen    string   `placeholder:"HOST:PORT" help:"Address to serve on (default: treadle_web: listen of the configuration, else 127.0.0.1:8080)."`
	Users     string   `placeholder:"FILE" help:"File of users, a line NAME:PASSWORD each, in place of treadle_web: users of the configuration (default: everybody, if neither names any)."`
	AllowHost []string `sep:"none" placeholder:"NAME" help:"Host name that requests may be sent to, beside IP addresses, localhost, this host's own name and that of --listen; repeatable (default: none)."`
	LogLevel  string   `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error (default: ${default})."`
	LogFormat string   `enum:"text,json" default:"text" help:"Form of the log on standard error: text or json (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (disbatchWebCmd) Help() string {
	return `Serves the REST routes of Disbatch 4, the older ones that end in -json, and pages for people: queues and nodes at /, tasks at /search. The pages are built in; web_root is not read.

	treadle disbatch web
	treadle disbatch web --config jobs.json --listen 0.0.0.0:8080 --users /etc/disbatch/users

It speaks plain HTTP: put it behind something that has TLS when passwords cross a network. The database may be away when it starts; requests say so until it is there. SIGTERM and SIGINT: requests under way are finished, 10s at most.`
}

// Run serves until a signal.
func (d *disbatchWebCmd) Run(con *console) error {
	c, err := disbatchConfig(d.Config)
	if err != nil {
		return err
	}
	o := web.Options{Config: c, Listen: d.Listen, AllowHosts: d.AllowHost, Log: newLog(con.err, levelOf(d.LogLevel), d.LogFormat)}
	if d.Users != "" {
		if o.Users, err = readUsers(d.Users); err != nil {
			return badUsage("--users: %w", err)
		}
	}
	first, second, stop := signals()
	defer stop()
	context.AfterFunc(first, func() { o.Log.Info("stopping") })
	context.AfterFunc(second, func() { os.Exit(exitInterrupted) })
	return settingError(web.Run(first, o))
}

// readUsers reads names and passwords. It refuses a file without users, with which everybody would have access.
func readUsers(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	users := make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimRight(lines.Text(), "\r")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, password, ok := strings.Cut(line, ":")
		if !ok || name == "" || password == "" {
			return nil, fmt.Errorf("%s line %d: want NAME:PASSWORD", path, n)
		}
		users[name] = password
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(users) == 0 {
		return nil, fmt.Errorf("%s names no user", path)
	}
	return users, nil
}
