package main

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"treadle/loop/setting"
)

// helpFlags turns the words of other programs for help and the version into flags.
func helpFlags(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(args[1:len(args):len(args)], "--help")
	case len(args) == 1 && (args[0] == "version" || args[0] == "-v" || args[0] == "-V"):
		return []string{"--version"}
	}
	return args
}

// usage turns an error of the parser into a usage error that points at the help of its command.
func usage(err error) error {
	var several problems
	if errors.As(err, &several) {
		return usageError{several}
	}
	command := "treadle"
	var parse *kong.ParseError
	if errors.As(err, &parse) {
		if parse.Context.Selected() != nil {
			command = "treadle " + parse.Context.Selected().Path()
		}
		err = plainly(parse)
	}
	return badUsage("%w (see %s --help)", err, command)
}

// noValue matches kong's error for a flag without a value: at the end of the line, or before another flag.
var noValue = regexp.MustCompile(`^--([a-z0-9-]+): expected .* value but got "(.*)" \((.*)\)`)

// negative matches a number that kong took for a flag.
var negative = regexp.MustCompile(`^-[0-9]`)

// unknownFlag matches kong's error for an unknown flag.
var unknownFlag = regexp.MustCompile(`^unknown flag --([a-z-]+)`)

// notAFlag matches kong's error for an argument that begins with one dash.
var notAFlag = regexp.MustCompile(`^unknown flag (-[^-][^ ,]*)`)

// plainly rewords kong's error for a flag without a value, for an argument that it took for a flag, and for a setting
// of the running server.
func plainly(err *kong.ParseError) error {
	selected := err.Context.Selected()
	if m := unknownFlag.FindStringSubmatch(err.Error()); m != nil && selected != nil && selected.Path() == "serve" {
		if err := changeRunning(m[1]); err != nil {
			return err
		}
	}
	if m := notAFlag.FindStringSubmatch(err.Error()); m != nil && selected != nil && len(selected.Positional) > 0 {
		path := selected.Path()
		// kong names the first letter alone of a value such as -5m.
		typed := slices.IndexFunc(err.Context.Args, func(arg string) bool { return strings.HasPrefix(arg, m[1]) })
		if path == "config set" && negative.MatchString(m[1]) && typed > 0 {
			return fmt.Errorf("%s: %s is negative", err.Context.Args[typed-1], err.Context.Args[typed])
		}
		return fmt.Errorf("unknown flag %s; an argument that begins with - follows --, as in treadle %s -- %[1]s", m[1], path)
	}
	m := noValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	flag, got, kind := m[1], m[2], m[3]
	want, name, span, signed := "", "--"+flag, false, false
	for _, f := range err.Context.Flags() {
		if f.Name == flag {
			want, name = ", "+f.PlaceHolder, nameOf(f)
			span = f.Target.Type() == reflect.TypeFor[time.Duration]()
			signed = f.Target.Type() == reflect.TypeFor[int64]() || strings.HasPrefix(f.Default, "-")
		}
	}
	switch {
	case kind == "<EOL>":
		return fmt.Errorf("%s needs a value%s", name, want)
	case negative.MatchString(got) && !signed:
		if d, err := parseDuration(got); err == nil && span {
			got = setting.FormatDuration(d)
		}
		return fmt.Errorf("--%s: %s is negative", flag, got)
	case negative.MatchString(got):
		return fmt.Errorf("%s needs a value%s; a value that begins with - is written --%s=%s", name, want, flag, got)
	}
	return fmt.Errorf("%s needs a value%s, and got the flag %s; a value that begins with - is written --%s=%s", name, want, got, flag, got)
}

// nameOf returns a flag's name for messages, with its letter if it has one.
func nameOf(flag *kong.Flag) string {
	if flag.Short != 0 {
		return "-" + string(flag.Short) + " (--" + flag.Name + ")"
	}
	return "--" + flag.Name
}

// serverless maps each command that connects to no server to the setting or argument that it uses instead of -H.
var serverless = map[string]string{
	"serve": "--periodic and --bind say where it listens", "journal": "it works on a directory", "print": "it prints files that it has",
	"cluster": "--data names a node of this machine", "config check": "it reads a file", "config defaults": "it prints a file",
	"disbatch node": "--config names its site", "disbatch task": "--config names its site", "disbatch web": "--config names its site",
}

// otherProtocols are the groups of commands that do not speak Periodic.
var otherProtocols = []string{"gloom", "dwork", "kts46", "disbatch", "health"}

// refuseIgnored refuses a flag that the command would ignore.
func refuseIgnored(parsed *kong.Context) error {
	words := strings.Fields(parsed.Command())
	if len(words) == 0 {
		return nil
	}
	place := cmp.Or(serverless[words[0]], serverless[strings.Join(words[:min(2, len(words))], " ")])
	for _, part := range parsed.Path {
		if part.Flag == nil || part.Resolved {
			continue
		}
		why, ignored := "", false
		switch part.Flag.Name {
		case "host":
			why, ignored = place, place != ""
		case "crc", "framing":
			why, ignored = "it is about the Periodic protocol of the other commands", place != "" || slices.Contains(otherProtocols, words[0])
		case "server":
			why, ignored = "it names the hub, and -H the server whose HTTP this is read from", parsed.Selected().Path() == "dwork graph"
		}
		if ignored {
			return badUsage("%s changes nothing for treadle %s: %s", nameOf(part.Flag), parsed.Selected().Path(), why)
		}
	}
	return nil
}

// checkCommand returns the command line to run for each job: the arguments behind the worker's flags.
func checkCommand(ctx *kong.Context, command []string, example string) ([]string, error) {
	switch {
	case len(command) == 0, len(command) == 1 && command[0] == "--":
		return nil, fmt.Errorf("no command: write it after --, as in %s", example)
	case command[0] == "--":
		return command[1:], nil
	case strings.HasPrefix(command[0], "-"):
		return nil, fmt.Errorf("unknown flag %s%s: the command follows --, as in %s", command[0], meant(ctx, command[0]), example)
	}
	return command, nil
}

// meant proposes the flag with a name that begins like an unknown flag.
func meant(ctx *kong.Context, typed string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(typed, "-"), "=")
	for _, flag := range ctx.Flags() {
		if name != "" && (strings.HasPrefix(name, flag.Name) || strings.HasPrefix(flag.Name, name)) {
			return " (did you mean --" + flag.Name + "?)"
		}
	}
	return ""
}
