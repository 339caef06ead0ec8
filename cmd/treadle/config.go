package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"treadle/loop"
	"treadle/loop/setting"
)

// The settings of treadle serve are the fields of serveCmd, see package setting. A flag wins over a variable, that over
// the configuration file, and that over the default.

// configFlag is the setting that names the configuration file.
const configFlag = "config"

// variableOf returns the environment variable of a setting.
func variableOf(setting string) string {
	return variablePrefix + strings.ReplaceAll(strings.ToUpper(setting), "-", "_")
}

// variablePrefix begins the variables of settings. Those of the clients, as TREADLE_HOST, do not begin so.
const variablePrefix = "TREADLE_SERVE_"

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

// problems are errors that are reported together, one line each.
type problems []error

func (p problems) Error() string   { return errors.Join(p...).Error() }
func (p problems) Unwrap() []error { return p }

// source is where the value of a setting comes from. The zero value is a flag.
type source struct {
	file     string
	line     int // in the file
	variable string
}

func (s source) String() string {
	switch {
	case s.variable != "":
		return s.variable
	case s.file != "":
		return fmt.Sprintf("%s:%d", s.file, s.line)
	}
	return "flag"
}

// sources says where the settings of a server come from, and has what else its configuration file says.
type sources struct {
	of    map[string]source // by setting, without those that have their defaults
	rules []loop.PolicyRule
	cron  []loop.CronEntry

	values map[string]any // by setting, of variables and the file, as kong takes them
}

// BeforeResolve reads the variables and the configuration file once the flags are known.
func (s *serveCmd) BeforeResolve(ctx *kong.Context, c *cli) error {
	c.sources = &sources{of: make(map[string]source), values: make(map[string]any)}
	var faults problems
	flags := ctx.Selected().Flags
	at := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == configFlag })
	faults = append(faults, c.sources.readVariables(flags)...)
	path, _ := ctx.FlagValue(flags[at]).(string)
	if named, ok := c.sources.values[configFlag].(string); ok && path == "" {
		path = named
	}
	if path != "" {
		faults = append(faults, c.sources.readFile(path, flags)...)
	}
	for _, given := range ctx.Path {
		if given.Flag != nil {
			c.sources.of[given.Flag.Name] = source{}
		}
	}
	if faults != nil {
		return faults
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		return c.sources.values[flag.Name], nil
	}))
	return nil
}

// readVariables takes the values of variables. An empty variable counts as not set.
func (c *sources) readVariables(flags []*kong.Flag) (faults problems) {
	for _, flag := range flags {
		name := variableOf(flag.Name)
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		var value any = text
		if flag.IsSlice() {
			var list []any
			for part := range strings.SplitSeq(text, ",") {
				list = append(list, strings.TrimSpace(part))
			}
			value = list
		}
		value, err := checkValue(name, flag, value)
		if err != nil {
			faults = append(faults, usageError{err})
			continue
		}
		c.values[flag.Name], c.of[flag.Name] = value, source{variable: name}
	}
	return faults
}

// unknownVariables returns the variables that look like those of settings. They are no error: a cluster may set some,
// as TREADLE_SERVE_PORT for a service called treadle-serve.
func (s *serveCmd) unknownVariables() (all []string) {
	known := make(map[string]bool)
	for _, one := range setting.Of(s) {
		known[variableOf(one.Name)] = true
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, variablePrefix) && !known[name] {
			all = append(all, name)
		}
	}
	return all
}

// readFile takes the values of a file that no variable has given, its rules and cron entries.
func (c *sources) readFile(path string, flags []*kong.Flag) (faults problems) {
	text, err := readConfigFile(path)
	if err != nil {
		return problems{&configError{path: path, err: err}}
	}
	names := []string{queueTable, cronTable}
	for _, flag := range flags {
		if flag.Name != configFlag {
			names = append(names, flag.Name)
		}
	}
	values, faults := parseConfig(path, text, names)
	lines := linesOf(text)
	for _, flag := range flags {
		value, ok := values[flag.Name]
		if !ok {
			continue
		}
		value, err := checkValue(flag.Name, flag, value)
		if err != nil {
			faults = append(faults, &configError{path, lines[flag.Name], err})
			continue
		}
		if _, given := c.of[flag.Name]; !given {
			c.values[flag.Name], c.of[flag.Name] = value, source{file: path, line: lines[flag.Name]}
		}
	}
	var inRules, inCron problems
	c.rules, inRules = parseRules(path, text, values[queueTable])
	c.cron, inCron = parseCron(path, text, values[cronTable])
	faults = slices.Concat(faults, inRules, inCron)
	slices.SortStableFunc(faults, func(a, b error) int { return cmp.Compare(lineOf(a), lineOf(b)) })
	return faults
}

// lineOf returns the line of a configError; 0: unknown.
func lineOf(err error) int {
	if e := (*configError)(nil); errors.As(err, &e) {
		return e.line
	}
	return 0
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
func parseConfig(path string, text []byte, names []string) (map[string]any, problems) {
	// The decoder reports the line of a key without a field: so each name gets a field.
	fields := make([]reflect.StructField, len(names))
	for i, name := range names {
		fields[i] = reflect.StructField{
			Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[any](),
			Tag: reflect.StructTag(fmt.Sprintf(`toml:"%s"`, name)),
		}
	}
	target := reflect.New(reflect.StructOf(fields))
	if line, err := checkKeys(text); err != nil {
		return nil, problems{&configError{path, line, err}}
	}
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(target.Interface())
	var unknown *toml.StrictMissingError
	if err != nil && !errors.As(err, &unknown) {
		return nil, problems{located(path, text, err)}
	}
	values := map[string]any{}
	for i, name := range names {
		if v := target.Elem().Field(i).Interface(); v != nil {
			values[name] = v
		}
	}
	var faults problems
	if unknown != nil {
		for i := range unknown.Errors {
			line, _ := unknown.Errors[i].Position()
			faults = append(faults, &configError{path, line, unknownKey(unknown.Errors[i].Key(), names)})
		}
	}
	return values, faults
}

// keyOfLine matches the key of a line of TOML.
var keyOfLine = regexp.MustCompile(`^\s*([A-Za-z0-9_-]+)\s*=`)

// located returns the error of a text that is no TOML, with its line and the key there. It leaves the value out,
// which may be a secret.
func located(path string, text []byte, err error) error {
	var syntax *toml.DecodeError
	if !errors.As(err, &syntax) {
		return &configError{path: path, err: err}
	}
	line, _ := syntax.Position()
	cause := strings.TrimPrefix(syntax.Error(), "toml: ")
	if lines := bytes.Split(text, []byte("\n")); line > 0 && line <= len(lines) {
		if m := keyOfLine.FindSubmatch(lines[line-1]); m != nil {
			cause = string(m[1]) + ": " + cause
		}
	}
	return &configError{path, line, errors.New(cause)}
}

// unknownKey returns the error of a key that is no setting, with the nearest one.
func unknownKey(key toml.Key, names []string) error {
	typed := strings.Join(key, ".")
	if err := changeRunning(typed); err != nil {
		return err
	}
	return fmt.Errorf("unknown setting %q%s; the settings are the flags of treadle serve --help", typed, nearestOf(typed, names))
}

// nearestOf asks for the nearest of the names, or is empty when none is near.
func nearestOf(typed string, names []string) string {
	if near := nearest(typed, slices.Clone(names)); slices.Contains(names, near[0]) {
		return fmt.Sprintf(", did you mean %q?", near[0])
	}
	return ""
}

// blame puts the file and the line, or the variable, in front of an error about a setting that comes from there.
func (c *sources) blame(err error) error {
	var option *loop.OptionError
	if !errors.As(err, &option) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), "--"+option.Setting)
	switch from := c.of[option.Setting]; {
	case from.variable != "":
		return &reworded{from.variable + text, err}
	case from.file != "":
		return &configError{from.file, from.line, &reworded{option.Setting + text, err}}
	}
	return err
}

// blameEach is blame for an error that may join several, which become problems.
func (c *sources) blameEach(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return c.blame(err)
	}
	var all problems
	for _, one := range joined.Unwrap() {
		if several, ok := c.blameEach(one).(problems); ok {
			all = append(all, several...)
		} else {
			all = append(all, c.blame(one))
		}
	}
	return all
}

// reworded is an error with another text.
type reworded struct {
	text string
	err  error
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.err }

// checkValue checks a value of the setting from the variable or file key called name, and returns it as kong takes it.
func checkValue(name string, flag *kong.Flag, value any) (any, error) {
	value, err := tokens(value, flag.IsSlice())
	scratch := reflect.New(flag.Target.Type()).Elem()
	if err == nil {
		scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
		err = flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, scratch)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if flag.Enum == "" {
		return value, nil
	}
	chosen := []string{fmt.Sprint(scratch)}
	if list, ok := scratch.Interface().([]string); ok {
		chosen = list
	}
	allowed := strings.Split(flag.Enum, ",")
	for _, one := range chosen {
		if !slices.Contains(allowed, one) {
			return nil, fmt.Errorf("%s must be one of \"%s\" but got %q", name, strings.Join(allowed, `","`), one)
		}
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
