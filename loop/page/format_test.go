package page

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestWritten: names are text, whatever they are: no tags, no control characters, nothing that changes the direction of
// text.
func TestWritten(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := string(name(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	f("mail", "<bdi>mail</bdi>")
	f("", `<i class="none">(empty)</i>`)
	f(`<b a="1">&'`, "<bdi>&lt;b a=&#34;1&#34;&gt;&amp;&#39;</bdi>")
	f("a\x00\n\x7f", `<bdi>a<i class="esc">\x00</i><i class="esc">\x0a</i><i class="esc">\x7f</i></bdi>`)
	f("\u202eabc\u2066", `<bdi><i class="esc">\u202e</i>abc<i class="esc">\u2066</i></bdi>`)
	f("a\u00a0b\u2003", `<bdi>a<i class="esc">\u00a0</i>b<i class="esc">\u2003</i></bdi>`)
	f("\xff\xc3é日", `<bdi><i class="esc">\xff</i><i class="esc">\xc3</i>é日</bdi>`)
	f(strings.Repeat("é", 41), "<bdi>"+strings.Repeat("é", 40)+`</bdi><i class="none" title="82 bytes">…</i>`)
	f("a"+strings.Repeat("é", 40), "<bdi>a"+strings.Repeat("é", 39)+`</bdi><i class="none" title="81 bytes">…</i>`)
}

// TestNumbers: numbers, sizes, rates and times are short and have units.
func TestNumbers(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	f(number(0), "0")
	f(number(-1234567), "-1,234,567")
	f(number(uint64(999)), "999")
	f(plural(1, "job"), "1 job")
	f(plural(1000, "job"), "1,000 jobs")
	f(size(0), "0 B")
	f(size(1023), "1023 B")
	f(size(1024), "1.0 KiB")
	f(size(uint64(64<<20)), "64.0 MiB")
	f(size(int64(1)<<40-1), "1.0 TiB")
	f(perSecond(0), "0")
	f(perSecond(0.01), "<0.1")
	f(perSecond(9.94), "9.9")
	f(perSecond(9.96), "10")
	f(perSecond(123456.7), "123,457")
	f(span(-1), "0 s")
	f(span(59), "59 s")
	f(span(60), "1 m")
	f(span(3661), "1 h 1 m")
	f(span(2*24*3600+5), "2 d")
	f(describeRequest("POST /api/v1/queues/pause"), "pause queue")
	f(describeRequest("PATCH /api/v1/policies"), "set policies")
	f(describeRequest("POST /api/v1/cron"), "add cron")
	f(describeRequest("operation 17"), "end operation")
	if got := string(shortTime(time.Date(2020, 1, 2, 3, 4, 5, 0, time.Local).UnixMilli())); !strings.Contains(got, ">2020-01-02 03:04:05</time>") {
		t.Errorf("%s", got)
	}
}

// TestIndent: JSON is written with a line for each member and no byte of a value changed, and text of any depth is
// written in a time and a space that its length bounds.
func TestIndent(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := string(indentJSON([]byte(text))); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
	f(`{"a":12345678901234567890.10,"b":[1,2],"c":{},"d":[ ]}`, "{\n  \"a\": 12345678901234567890.10,\n  \"b\": [\n    1,\n    2\n  ],\n  \"c\": {},\n  \"d\": []\n}")
	f(`{"a":"{\"x\":[1, 2]} \\"}`, "{\n  \"a\": \"{\\\"x\\\":[1, 2]} \\\\\"\n}")
	f(`{"cut":[1,{"a":"b`, "{\n  \"cut\": [\n    1,\n    {\n      \"a\": \"b")
	deep := strings.Repeat("[", 4096)
	if got := indentJSON([]byte(deep)); len(got) > 3*len(deep) {
		t.Errorf("%d bytes become %d", len(deep), len(got))
	}
	for _, text := range []string{`{"a":[1,{"b":null}],"c":1e400,"d":"é\u0000"}`, strings.Repeat("[", 100) + strings.Repeat("]", 100)} {
		var before, after any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		e := json.NewDecoder(strings.NewReader(string(indentJSON([]byte(text)))))
		e.UseNumber()
		if err := d.Decode(&before); err != nil {
			t.Fatal(err)
		}
		if err := e.Decode(&after); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		one, _ := json.Marshal(before)
		two, _ := json.Marshal(after)
		if string(one) != string(two) {
			t.Errorf("%s becomes %s", one, two)
		}
	}
}

// TestPayload: the first form of a payload is the one that its bytes are.
func TestPayload(t *testing.T) {
	f := func(text, chosen string, cut bool, form, part string) {
		t.Helper()
		p := newPayload("workload", "workload", chosen, "/job?id=1", []byte(text), len(text), cut, new(secrecy))
		if p.Form != form || !strings.Contains(string(p.Text), part) {
			t.Errorf("%q as %q: %s, %s", text, chosen, p.Form, p.Text)
		}
	}
	f(`{"a":1}`, "", false, "json", "&#34;a&#34;: 1")
	f(`{"a":1}`, "text", false, "text", "{&#34;a&#34;:1}")
	f(`{"a":`, "", false, "text", "{")
	f(`{"a":`, "", true, "json", "{")
	f("hello\n\tyou", "", false, "text", "hello\n\tyou")
	f("hello", "json", false, "text", "hello")
	f("\xff\x00<", "", false, "hex", "000000  ff 00 3c")
	f("\xff\x00<", "text", false, "text", `<i class="esc">\xff</i>`)
	f("caf\xc3", "", true, "text", "caf")
	f("<script>", "", false, "text", "&lt;script&gt;")
}

// TestCells: what has changed of a page is found, as small as it is, and once.
func TestCells(t *testing.T) {
	f := func(before, now string, want ...string) {
		t.Helper()
		got := make(map[string]string)
		for _, one := range changedCells(cellsOf([]byte(before)), cellsOf([]byte(now))) {
			got[one[0]] = one[1]
		}
		if len(got) != len(want)/2 {
			t.Errorf("%s -> %s: %q", before, now, got)
		}
		for i := 0; i < len(want); i += 2 {
			if html, ok := got[want[i]]; !ok || html != want[i+1] {
				t.Errorf("%s -> %s: %q, want %s", before, now, got, want[i:])
			}
		}
	}
	const table = `<!doctype html><table><tbody data-live="rows"><tr><td data-live="a">%</td><td data-live="b" class="n">2</td></tr></tbody></table><br><b data-live="now">1</b>`
	row := func(a string) string { return strings.Replace(table, "%", a, 1) }
	f(row("1"), row("1"))
	f(row("1"), row("3"), "a", "3")
	f(row("1"), row("<i>3</i><svg><path d=\"M0\"/></svg>"), "a", `<i>3</i><svg><path d="M0"/></svg>`)
	f(row("1"), strings.Replace(row("3"), `<b data-live="now">1`, `<b data-live="now">2`, 1), "a", "3", "now", "2")
	more := strings.Replace(row("3"), "</tr>", `</tr><tr><td data-live="c">4</td></tr>`, 1)
	f(row("1"), more, "rows", `<tr><td data-live="a">3</td><td data-live="b" class="n">2</td></tr><tr><td data-live="c">4</td></tr>`)
	f(row("1"), `<p data-live="new">x</p>`)
	f(`<p data-live="a">1<input name="x"></p>`, `<p data-live="a">2<input name="x"></p>`, "a", `2<input name="x">`)
	for _, odd := range []string{"", "<", "<p", `<p data-live="`, "</p>", "<>", "<p data-live=\"a\">"} {
		f(odd, odd)
	}
}

// TestPath: a path in front of the pages is one of plain words.
func TestPath(t *testing.T) {
	for _, path := range []string{"", "/", "/jobs", "/jobs/", "/a-1/b_2.c"} {
		if err := (&Options{Path: path}).Check(); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{"jobs", "//jobs", "/a//b", "/..", "/a/./b", "/é", "/a b", "/{x}", "/a?b", "/%61"} {
		if err := (&Options{Path: path}).Check(); err == nil {
			t.Errorf("%q is taken", path)
		}
	}
}

// TestScriptSize: the script stays small.
func TestScriptSize(t *testing.T) {
	text, err := files.ReadFile("files/script.js")
	if err != nil || len(text) > 15_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
