package admin

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// TestFilter checks what is read of a filter, as JSON.
func TestFilter(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		filter, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		if got := shown(filter); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	f("", `{}`)
	f(" \t\r\n ", `{}`)
	f("queue:mail.* queue:mail.a", `{"Queues":["mail.*","mail.a"]}`)
	f(`name:"two words" queue:""`, `{"Queues":[""],"Names":["two words"]}`)
	f("state:failed", `{"States":["failed"]}`)
	f("state:ready,delayed,running,locked,waiting,failed,done,expired", `{"States":["ready","delayed","running","locked","waiting","failed","done","expired"]}`)
	f("id:5.17.100", `{"ID":"5.17.100"}`)
	f("priority:7", `{"Priority":{"From":7,"To":7}}`)
	f("prio:>-5 priority:<=9 prio:<9", `{"Priority":{"From":-4,"To":8}}`)
	f("priority:>=9223372036854775807", `{"Priority":{"From":9223372036854775807,"To":9223372036854775807}}`)
	f("age:>10m", `{"Age":{"From":600001,"To":9223372036854775807}}`)
	f("age:>=2d age:<90s", `{"Age":{"From":172800000,"To":89999}}`)
	f("worker:10.0.0.1:99 protocol:gloom", `{"Workers":["10.0.0.1:99"],"Protocol":"gloom"}`)
	f(`word "two words" text:"say \"a\\b\""`, `{"Texts":["word","two words","say \"a\\b\""]}`)
	f(`text:.*[a-z]+(x|y)$ text:"a:b"`, `{"Texts":[".*[a-z]+(x|y)$","a:b"]}`)
	for _, text := range []string{"priority:>9223372036854775807", "priority:<-9223372036854775808", "priority:>5 priority:<5"} {
		if filter, err := ParseFilter(text); err != nil || filter.Priority.From <= filter.Priority.To {
			t.Errorf("%s: %+v, %v: it is not empty", text, filter.Priority, err)
		}
	}
	if filter, err := ParseFilter("queue:\xff name:\xfe\x00"); err != nil || filter.Queues[0] != "\xff" || filter.Names[0] != "\xfe\x00" {
		t.Errorf("a filter of any bytes: %+v, %v", filter, err)
	}
}

// shown returns what a filter has as JSON.
func shown(f *Filter) string {
	text, _ := json.Marshal(f)
	var members map[string]json.RawMessage
	_ = json.Unmarshal(text, &members)
	var parts []string
	for _, name := range []string{"Queues", "Names", "Workers", "Texts", "States", "ID", "Protocol", "Priority", "Age"} {
		if v := string(members[name]); v != "null" && v != `""` {
			parts = append(parts, `"`+name+`":`+v)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// TestFilterErrors: an error names the wrong term and what may stand there, and is short.
func TestFilterErrors(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		filter, err := ParseFilter(text)
		if err == nil {
			t.Errorf("%.99s: it is read as %s", text, shown(filter))
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%.99s: %v, which does not say %s", text, err, w)
			}
		}
		if len(err.Error()) > 400 {
			t.Errorf("%.99s: an error of %d bytes", text, len(err.Error()))
		}
	}
	f("queue:a que:b", `"que:b"`, "no such key", "queue, state, name")
	f("http://x", `"http://x"`, "no such key", `text:"..."`)
	f(":x", "no such key")
	f("queue:", `"queue:"`, "the value is missing", "the name of a queue")
	f(`text:""`, "the value is missing")
	f("state:failed,", "is no state", "ready,delayed")
	f("state:broken", `"broken" is no state`, "ready,delayed")
	f("state:failed state:done", "stands twice", "comma")
	f("id:1.2.3 id:1.2.3", "stands twice")
	f("protocol:a protocol:b", "stands twice")
	f("priority:high", `"high" is no whole number`, "with >, >=, < or <=")
	f("priority:><5", `"><" is no sign`)
	f("priority:99999999999999999999", "is no whole number")
	f("age:10m", "the sign is missing", ">10m")
	f("age:>ten", `"ten" is no time`)
	f("age:>-5m", "is no time")
	f("age:>99999999d", "is no time")
	f("age:=>5m", "is no sign")
	f(`text:"open`, "closing quote is missing")
	f(`text:"a"b`, "blank must follow")
	f(`text:a"b`, "in quotes as a whole")
	f(`text:"a\nb"`, "alone")
	f("queue:"+strings.Repeat("*a", 200), "at most 256 bytes")
	f(strings.Repeat("a ", maxFilterTerms+1), "at most 32 terms")
	f(strings.Repeat("a", 10<<20), "at most 4096 bytes, not 10485760")
	f("x:"+strings.Repeat("\x00", 4000), "no such key")
	f(strings.Repeat("x", 4000)+":", "no such key")
}

// TestFilterQueue: a filter means the jobs of one queue when a term names it without a pattern.
func TestFilterQueue(t *testing.T) {
	for text, want := range map[string]string{"queue:a": "a", "queue:a* queue:ab": "ab", "queue:a*": "-", "name:a": "-", "queue:a?": "-", `queue:""`: ""} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Fatal(err)
		}
		if name, one := f.Queue(); one != (want != "-") || one && name != want {
			t.Errorf("%s: %q, %v, want %q", text, name, one, want)
		}
	}
}

// written returns a filter as text that ParseFilter reads.
func written(f *Filter) string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var terms []string
	add := func(key string, values ...string) {
		for _, v := range values {
			terms = append(terms, key+`:"`+quote.Replace(v)+`"`)
		}
	}
	add("queue", f.Queues...)
	add("name", f.Names...)
	add("worker", f.Workers...)
	add("text", f.Texts...)
	if f.States != nil {
		add("state", strings.Join(f.States, ","))
	}
	if f.ID != "" {
		add("id", f.ID)
	}
	if f.Protocol != "" {
		add("protocol", f.Protocol)
	}
	return strings.Join(terms, "\n\t ")
}

// FuzzFilter reads a filter. Written again with each value in quotes it is the same filter, and it stays within its
// bounds.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{"", "queue:mail.* state:failed,done", `priority:>5 age:<=1h30m text:"two \"words\\"`, "id:5.17.100 word worker:w protocol:p", "a\xff \x00:"} {
		f.Add(text)
	}
	const longest = 2*4*maxQuoted + 200 // a term and its value, each byte as \xff, and the words
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := ParseFilter(text)
		if err != nil {
			if filter != nil || len(err.Error()) > longest {
				t.Fatalf("%q: %+v, an error of %d bytes", text, filter, len(err.Error()))
			}
			return
		}
		terms := len(filter.Queues) + len(filter.Names) + len(filter.Workers) + len(filter.Texts)
		if len(text) > maxFilter || terms > maxFilterTerms {
			t.Fatalf("%d bytes with %d terms are read", len(text), terms)
		}
		if filter.Age != nil && (filter.Age.From > math.MaxInt64/2 || filter.Age.To < -1) {
			t.Fatalf("%q: an age of %+v", text, filter.Age)
		}
		again := *filter
		again.Priority, again.Age = nil, nil
		want := shown(&again)
		if len(written(&again)) > maxFilter {
			return
		}
		if back, err := ParseFilter(written(&again)); err != nil || shown(back) != want {
			t.Fatalf("%q is read as %s, written again as %s, %v", text, want, shown(back), err)
		}
	})
}
