package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"

	"treadle/loop"
	"treadle/loop/client"
)

// configCheckCmd checks a configuration file.
type configCheckCmd struct {
	File string `arg:"" help:"Configuration file, as of treadle serve --config."`
}

// Help implements kong.HelpProvider.
func (configCheckCmd) Help() string {
	return `Says all that treadle serve would refuse, a line each with the file's line, with exit code 2. Nothing is opened.

	treadle config check /etc/treadle.toml`
}

// Run reads the file and the variables as treadle serve does, and names everything that it would refuse.
func (f *configCheckCmd) Run(con *console) error {
	c, err := checkedServe(f.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(con.out, "%s is right: %s, %s for queues, %s of cron\n", printable(f.File),
		counted(c.sources.inFile(), "setting"), counted(len(c.sources.rules), "rule"), counted(len(c.sources.cron), "job"))
	return err
}

// checkedServe reads a file and the variables and returns an error for what a server would refuse. It opens nothing.
func checkedServe(path string) (*cli, error) {
	c, err := parseServe([]string{"serve", "--" + configFlag + "=" + path})
	if err != nil {
		return nil, err
	}
	o, _, err := c.Serve.completeOptions(c.sources, slog.New(slog.DiscardHandler))
	if err == nil {
		_, err = loop.New(o)
	}
	if err != nil {
		return nil, c.sources.blameEach(err)
	}
	return c, nil
}

// inFile counts the settings that come from the file.
func (c *sources) inFile() (n int) {
	for _, from := range c.of {
		if from.file != "" {
			n++
		}
	}
	return n
}

// configShowCmd prints settings that are in effect.
type configShowCmd struct {
	Config string `placeholder:"FILE" help:"Show what a server would have with this file and the variables of here (default: ask the running server)."`
	JSON   bool   `name:"json" help:"Print JSON, one object a line."`
}

// Help implements kong.HelpProvider.
func (configShowCmd) Help() string {
	return `The source is default, flag, a variable, or a line of the file. Passwords are left out.

	treadle config show
	treadle config show --config /etc/treadle.toml
	treadle config show --json | jq -r 'select(.source != "default") | .name'`
}

// Run prints each setting with its value and where that comes from.
func (s *configShowCmd) Run(c *cli, con *console) error {
	if s.Config != "" {
		checked, err := checkedServe(s.Config)
		if err != nil {
			return err
		}
		return s.print(con.out, checked.settings())
	}
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		all, err := a.Settings(ctx)
		if err != nil {
			return err
		}
		return s.print(con.out, all)
	})
}

func (s *configShowCmd) print(w io.Writer, all []client.Setting) error {
	if s.JSON {
		return writeLines(w, all)
	}
	lines := [][]string{{"SETTING", "VALUE", "SOURCE"}}
	for _, one := range all {
		lines = append(lines, []string{one.Name, printable(one.Value), printable(one.Source)})
	}
	return align(w, lines, 3)
}

// configDefaultsCmd prints a configuration file.
type configDefaultsCmd struct{}

// Help implements kong.HelpProvider.
func (configDefaultsCmd) Help() string {
	return `Settings whose default depends on others, or on the machine, stand in comments.

	treadle config defaults > treadle.toml`
}

// Run prints every setting with its help and its default. One that other settings or the machine decide stands in a
// comment.
func (configDefaultsCmd) Run(con *console) error {
	c := &cli{}
	program, err := newParser(c, &console{}, "serve")
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# Settings of treadle serve with their defaults. A flag wins over the variable TREADLE_SERVE_NAME, that over this file.\n")
	group := ""
	for _, command := range program.Model.Children {
		if command.Name != "serve" {
			continue
		}
		for _, flag := range command.Flags {
			if flag.Name == configFlag {
				continue
			}
			if flag.Group != nil && flag.Group.Title != group {
				group = flag.Group.Title
				fmt.Fprintf(&b, "\n# %s\n", group)
			}
			fmt.Fprintf(&b, "\n# %s\n%s\n", strings.ReplaceAll(flag.Help, "${default}", flag.Default),
				tomlLine(flag.Name, flag.Default, flag.PlaceHolder, flag.Target.Kind()))
		}
	}
	_, err = io.WriteString(con.out, b.String())
	return err
}

// tomlLine returns the line of a setting, a comment with an example when it has no default.
func tomlLine(name, standard, example string, kind reflect.Kind) string {
	comment, value := "", standard
	if standard == "" {
		comment, value = "# ", example
	}
	switch {
	case kind == reflect.Slice:
		return fmt.Sprintf(`%s%s = ["%s"]`, comment, name, strings.ReplaceAll(value, ",", `", "`))
	case kind == reflect.Int && strings.Trim(value, "0123456789") == "":
		return comment + name + " = " + value
	}
	return fmt.Sprintf("%s%s = %q", comment, name, value)
}
