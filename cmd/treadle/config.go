package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"treadle/loop"
)

// configPath is a --config flag: it makes the file's values the defaults of the
// command's other flags.
type configPath string

// configError is an error in the configuration file, with file and line.
type configError struct {
	path string
	line int // 0: unknown
	err  error
}

func (e *configError) Error() string {
	if e.line == 0 {
		return fmt.Sprintf("--config %s: %v", e.path, e.err)
	}
	return fmt.Sprintf("--config %s line %d: %v", e.path, e.line, e.err)
}

func (e *configError) Unwrap() error { return e.err }

// BeforeResolve reads the file once kong knows its path.
func (configPath) BeforeResolve(ctx *kong.Context, trace *kong.Path, c *cli) error {
	path := string(ctx.FlagValue(trace.Flag).(configPath))
	var names []string
	for _, f := range ctx.Selected().Flags {
		if f.Name != trace.Flag.Name {
			names = append(names, f.Name)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return &configError{path: path, err: err}
	}
	values, err := parseConfig(path, text, append(names, queueTable, cronTable))
	if err != nil {
		return err
	}
	rules, err := parseRules(path, text, values[queueTable])
	if err != nil {
		return err
	}
	entries, err := parseCron(path, text, values[cronTable])
	if err != nil {
		return err
	}
	c.file = &configValues{path: path, values: values, rules: rules, cron: entries, lines: linesOf(text), used: make(map[string]bool)}
	ctx.AddResolver(kong.ResolverFunc(c.file.resolve))
	return nil
}

// linesOf returns the line of each key of a TOML text that parseConfig has accepted.
func linesOf(text []byte) map[string]int {
	lines := make(map[string]int)
	for k := range keysOf(text) {
		if k.kind == unstable.KeyValue {
			lines[k.path[0]] = k.line
		}
	}
	return lines
}

// parseConfig returns the values of a TOML text and refuses keys other than names.
func parseConfig(path string, text []byte, names []string) (map[string]any, error) {
	// The decoder reports the line of a key without a field: so each name gets a field.
	fields := make([]reflect.StructField, len(names))
	for i, name := range names {
		fields[i] = reflect.StructField{
			Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[any](),
			Tag: reflect.StructTag(fmt.Sprintf(`toml:"%s"`, name)),
		}
	}
	target := reflect.New(reflect.StructOf(fields))
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(target.Interface())
	if err != nil {
		return nil, located(path, err)
	}
	values := map[string]any{}
	for i, name := range names {
		if v := target.Elem().Field(i).Interface(); v != nil {
			values[name] = v
		}
	}
	return values, nil
}

func located(path string, err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
		first := &unknown.Errors[0]
		line, _ := first.Position()
		key := strings.Join(first.Key(), ".")
		return &configError{path, line, fmt.Errorf("unknown setting %q; the settings are the flags of treadle serve --help", key)}
	}
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		line, _ := syntax.Position()
		return &configError{path, line, errors.New(strings.TrimPrefix(syntax.Error(), "toml: "))}
	}
	return &configError{path: path, err: err}
}

// configValues gives kong the values of flags that are not on the command line.
type configValues struct {
	path   string
	values map[string]any
	rules  []loop.PolicyRule
	cron   []loop.CronEntry
	lines  map[string]int
	used   map[string]bool // the flags that took their values from the file
}

// blame puts the file and the line in front of an error about a setting of the file.
func (c *configValues) blame(setting string, err error) error {
	if c == nil || !c.used[setting] {
		return err
	}
	text := strings.TrimPrefix(err.Error(), "--"+setting)
	return &configError{c.path, c.lines[setting], &reworded{setting + text, err}}
}

// reworded is an error with another text.
type reworded struct {
	text string
	err  error
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.err }

// resolve returns the file's value of a flag after checking that the flag accepts it.
func (c *configValues) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, ok := c.values[flag.Name]
	if !ok {
		return nil, nil
	}
	c.used[flag.Name] = true
	value, err := tokens(value, flag.IsSlice())
	if err == nil {
		scratch := reflect.New(flag.Target.Type()).Elem()
		scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
		err = flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, scratch)
	}
	if err != nil {
		return nil, &configError{c.path, c.lines[flag.Name], fmt.Errorf("%s: %w", flag.Name, err)}
	}
	return value, nil
}

// tokens turns a TOML value into the text, or the texts, that the flag would have on the command line.
func tokens(value any, list bool) (any, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case int64:
		return fmt.Sprint(v), nil
	case []any:
		for _, element := range v {
			if _, ok := element.(string); !ok || !list {
				return nil, fmt.Errorf("%v cannot be its value", v)
			}
		}
		if list {
			return v, nil
		}
	}
	return nil, fmt.Errorf("%v cannot be its value", value)
}
