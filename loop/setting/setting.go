// Package setting reads the settings of a server from the tags of the structs that hold them. A setting is one field.
// Its tags are all that is said of it anywhere: flags, variables, keys of the configuration file, help and documents
// follow from them.
//
//	name         the flag without its dashes, and the key of the file
//	default      the value as text; without the tag it is empty, or other settings decide it
//	help, placeholder, group, sep
//	             as the command line has them
//	enum         the values that a text may have, with commas between them
//	min, max     bounds of a time, a size or a number
//	type         "size": the number counts bytes
//	reload       present when a running server takes a new value
//	secret       present when the value is not shown in full
//	embed        the field is a struct with more settings
package setting

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Setting is a field of a struct that holds settings.
type Setting struct {
	Name  string
	Value reflect.Value // of the field
	Tag   reflect.StructTag
}

// Of returns the settings that options, a pointer to a struct, holds, in their order.
func Of(options any) []Setting { return within(reflect.ValueOf(options).Elem()) }

func within(v reflect.Value) (all []Setting) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if _, embed := field.Tag.Lookup("embed"); embed {
			all = append(all, within(v.Field(i))...)
		} else if name := field.Tag.Get("name"); name != "" {
			all = append(all, Setting{name, v.Field(i), field.Tag})
		}
	}
	return all
}

// Has reports whether the setting has a tag.
func (s *Setting) Has(tag string) bool {
	_, ok := s.Tag.Lookup(tag)
	return ok
}

// Text returns the value as the setting is written.
func (s *Setting) Text() string {
	switch v := s.Value.Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return FormatDuration(v)
	case int:
		if s.Tag.Get("type") == "size" {
			return Bytes(int64(v))
		}
	}
	return fmt.Sprint(s.Value.Interface())
}

// Shown returns Text for logs and answers: of a secret, the part between :// and @ is hidden.
func (s *Setting) Shown() string {
	text := s.Text()
	before, rest, found := strings.Cut(text, "://")
	if at := strings.LastIndex(rest, "@"); found && at >= 0 && s.Has("secret") {
		return before + "://***" + rest[at:]
	}
	return text
}

// FormatDuration writes a time without zero units at its end, 10m instead of 10m0s.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Bytes writes a number of bytes in the largest unit that divides it.
func Bytes(n int64) string {
	for _, unit := range []string{"", "KiB", "MiB"} {
		if n == 0 || n%1024 != 0 {
			return strconv.FormatInt(n, 10) + unit
		}
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + "GiB"
}

// Fill sets every setting with the zero value to its default.
func Fill(options any) {
	for _, s := range Of(options) {
		text, ok := s.Tag.Lookup("default")
		if !ok || !s.Value.IsZero() {
			continue
		}
		if s.Value.Kind() == reflect.String {
			s.Value.SetString(text)
		} else {
			s.Value.SetInt(s.number(text))
		}
	}
}

// number reads the text of a tag. It panics when the tag is wrong.
func (s *Setting) number(text string) int64 {
	var n int64
	var err error
	switch {
	case s.Value.Type() == reflect.TypeFor[time.Duration]():
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	case s.Tag.Get("type") == "size":
		n, err = sched.ParseSize(text)
	default:
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: the setting %s has a wrong tag: %v", s.Name, err))
	}
	return n
}

// Check returns a *protocol.OptionError for each setting that is not among its enum or outside its bounds.
func Check(options any) (faults []error) {
	for _, s := range Of(options) {
		var err error
		switch s.Value.Kind() {
		case reflect.String:
			err = s.checkEnum()
		case reflect.Int, reflect.Int64:
			err = s.checkBounds()
		}
		if err != nil {
			faults = append(faults, &protocol.OptionError{Setting: s.Name, Err: err})
		}
	}
	return faults
}

func (s *Setting) checkEnum() error {
	values := strings.Split(s.Tag.Get("enum"), ",")
	switch {
	case !s.Has("enum") || slices.Contains(values, s.Value.String()):
		return nil
	case len(values) == 2:
		return fmt.Errorf("%q is neither %s nor %s", s.Value.String(), values[0], values[1])
	}
	return fmt.Errorf("%q is none of %s", s.Value.String(), strings.Join(values, ", "))
}

// checkBounds returns an error if the value is below the tag min or above the tag max.
func (s *Setting) checkBounds() error {
	value, least, most := s.Value.Int(), s.Tag.Get("min"), s.Tag.Get("max")
	low, high := least != "" && value < s.number(least), most != "" && value > s.number(most)
	switch {
	case !low && !high:
		return nil
	case least != "" && most != "":
		return fmt.Errorf("%v is not between %v and %v", s.printed(value), s.printed(s.number(least)), s.printed(s.number(most)))
	case value < 0:
		return fmt.Errorf("%v is negative", s.printed(value))
	case s.Value.Type() == reflect.TypeFor[time.Duration]():
		return fmt.Errorf("%v is too short", s.printed(value))
	}
	return fmt.Errorf("%v is below %v", s.printed(value), s.printed(s.number(least)))
}

// printed returns a number of the setting for messages.
func (s *Setting) printed(n int64) any {
	switch {
	case s.Value.Type() == reflect.TypeFor[time.Duration]():
		return FormatDuration(time.Duration(n))
	case s.Tag.Get("type") == "size":
		return journal.Size(n).Exact()
	}
	return n
}

// Change is a setting that differs between two structs of one type. Before and After are as Shown.
type Change struct {
	Name, Before, After string
	Reloads             bool // it has the tag reload
}

// Changes returns the settings of after that differ from before. Both are pointers to structs of one type.
func Changes(before, after any) (all []Change) {
	old := Of(before)
	for i, s := range Of(after) {
		if !reflect.DeepEqual(old[i].Value.Interface(), s.Value.Interface()) {
			all = append(all, Change{s.Name, old[i].Shown(), s.Shown(), s.Has("reload")})
		}
	}
	return all
}
