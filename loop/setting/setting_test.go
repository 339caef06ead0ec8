package setting_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/loop"
	"treadle/loop/setting"
)

// TestTags: every setting of the server has one name, a help that says its default, a group, and bounds that hold its
// default.
func TestTags(t *testing.T) {
	o := loop.Defaults()
	names := []string{}
	for _, s := range setting.Of(&o) {
		help := s.Tag.Get("help")
		if slices.Contains(names, s.Name) || !strings.Contains(help, "(default: ") {
			t.Errorf("%s: %q", s.Name, help)
		}
		names = append(names, s.Name)
	}
	o.Loops = 1
	if faults := setting.Check(&o); len(faults) > 0 || len(names) < 45 {
		t.Errorf("%d settings: %v", len(names), faults)
	}
}

// settings are a struct with one setting of each kind.
type settings struct {
	Word string        `name:"word" enum:"a,b" default:"a"`
	Rest string        `name:"rest" enum:"a,b,c" default:"c" secret:""`
	Time time.Duration `name:"time" default:"90s" min:"0s" reload:""`
	Long time.Duration `name:"long" min:"1ns"`
	Size int           `name:"size" type:"size" default:"64MiB" min:"1KiB" max:"1GiB"`
	more `embed:""`
	Skip int
}

type more struct {
	Count int      `name:"count" default:"7" min:"1"`
	List  []string `name:"list"`
}

// TestSettings: the tags give the defaults, the bounds and the texts.
func TestSettings(t *testing.T) {
	var o settings
	setting.Fill(&o)
	texts := []string{}
	for _, s := range setting.Of(&o) {
		texts = append(texts, s.Name+"="+s.Text())
	}
	if got := strings.Join(texts, " "); got != "word=a rest=c time=1m30s long=0s size=64MiB count=7 list=" {
		t.Error(got)
	}
	wrong := settings{Word: "c", Rest: "mongodb://me:word@host", Time: -time.Minute, Size: 5, more: more{List: []string{"x", "y"}}}
	faults := []string{}
	for _, err := range setting.Check(&wrong) {
		faults = append(faults, err.Error())
	}
	want := []string{
		`--word: "c" is neither a nor b`, `--rest: "mongodb://me:word@host" is none of a, b, c`, `--time: -1m is negative`, `--long: 0s is too short`,
		`--size: 5 bytes is not between 1KiB and 1GiB`, `--count: 0 is below 1`,
	}
	if !slices.Equal(faults, want) {
		t.Errorf("got %q, want %q", faults, want)
	}
	got := fmt.Sprint(setting.Changes(&o, &wrong))
	if got != "[{word a c false} {rest c mongodb://***@host false} {time 1m30s -1m true} {size 64MiB 5 false} {count 7 0 false} {list  x,y false}]" {
		t.Error(got)
	}
}

// TestBytes: a size is written in the largest unit that divides it.
func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 5: "5", 1024: "1KiB", 1536: "1536", 64 << 20: "64MiB", 3 << 30: "3GiB", 3 << 40: "3072GiB"} {
		if got := setting.Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
