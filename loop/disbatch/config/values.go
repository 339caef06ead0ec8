package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// schema is the dialect of new queues: 2016 or 2018.
type schema int

// UnmarshalJSON implements json.Unmarshaler. It accepts a number and a string.
func (s *schema) UnmarshalJSON(text []byte) error {
	switch string(bytes.Trim(text, `"`)) {
	case "2016":
		*s = 2016
	case "2018", "null", "":
		*s = 2018
	default:
		return fmt.Errorf("schema is %s: say 2016 or 2018", text)
	}
	return nil
}

// GFS decides which output of a task goes to GridFS. The zero value is never.
type GFS int

// Never and auto keep up to 15 MiB of output in the task's document and differ in the argument of a task runner only:
// output beyond that goes to GridFS in both cases, since it must not be lost.
const (
	gfsNever GFS = iota
	gfsAlways
	gfsAuto
)

// Set reads a value in a form of the original: false, true, auto, 0, 1 or null.
func (g *GFS) Set(text string) error {
	switch strings.Trim(text, `"`) {
	case "", "false", "0", "no":
		*g = gfsNever
	case "true", "1", "yes":
		*g = gfsAlways
	case "auto", "null":
		*g = gfsAuto
	default:
		return fmt.Errorf("gfs is %s: say false, true or auto", text)
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *GFS) UnmarshalJSON(text []byte) error { return g.Set(string(text)) }

// String returns the value of a task runner's --gfs: 0, 1 or auto.
func (g GFS) String() string { return [...]string{"0", "1", "auto"}[g] }

// Never reports whether output stays in the task's document where it fits.
func (g GFS) Never() bool { return g == gfsNever }

// Always reports whether all output goes to GridFS.
func (g GFS) Always() bool { return g == gfsAlways }

// Truth is a value in the sense of Perl: everything is true but false, null, 0, "" and "0".
type Truth bool

// UnmarshalJSON implements json.Unmarshaler. It accepts every JSON value.
func (t *Truth) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "false", "null", "0", `""`, `"0"`:
		*t = false
	default:
		*t = true
	}
	return nil
}

// names is a list of names: a JSON array of strings or ids, the keys of an object, or one string.
type names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *names) UnmarshalJSON(text []byte) error {
	var list []any
	var object map[string]any
	var single string
	*n = nil
	switch {
	case json.Unmarshal(text, &list) == nil:
		for _, e := range list {
			switch e := e.(type) {
			case string:
				*n = append(*n, e)
			case map[string]any:
				id, _ := e["$oid"].(string)
				*n = append(*n, id)
			default:
				return fmt.Errorf("%s is no list of names", text)
			}
		}
	case json.Unmarshal(text, &object) == nil:
		for name := range object {
			*n = append(*n, name)
		}
		slices.Sort(*n)
	case json.Unmarshal(text, &single) == nil:
		if single != "" {
			*n = names{single}
		}
	default:
		return fmt.Errorf("%s is no list of names", text)
	}
	return nil
}

// seconds is a duration in seconds.
type seconds float64

// Duration converts the setting. A positive duration below 1 ns becomes 1 ns, since 0 stands for no limit. A duration
// that overflows becomes the longest one.
func (s seconds) Duration() time.Duration {
	switch nanos := float64(s) * float64(time.Second); {
	case s > 0 && nanos < 1:
		return 1
	case nanos >= math.MaxInt64:
		return math.MaxInt64
	default:
		return time.Duration(nanos)
	}
}
