package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// TestExportImport checks that an import of an export has the same jobs under the same Seqs and the
// same settings, and exports the same text. Every line is JSON.
func TestExportImport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := vfs.NewMem()
		d := mustOpen(t, testOptions(f))
		for range rapid.IntRange(0, 20).Draw(t, "jobs") {
			r := drawRecord(t)
			r.Space = max(r.Space, 1)
			d.next += 1 + rapid.Uint64Range(0, 1<<40).Draw(t, "gap")
			r.Seq = d.next
			r.Name = fmt.Appendf(r.Name, "%d", r.Seq) // an import refuses two jobs of one name
			d.put(int(r.Seq%3), r)
		}
		key := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		for range rapid.IntRange(0, 4).Draw(t, "settings") {
			d.setting(key.Draw(t, "key"), key.Draw(t, "value"))
			kind := Kind(rapid.Uint8Range(uint8(KindProject), uint8(KindProgress)).Draw(t, "document"))
			value := rapid.OneOf(key, rapid.SampledFrom([]string{`{"a":"\u0041"}`, `{"\u0041":1}`, `{"a":"\ud834"}`, "{\r}", `{ "b" : [{}] }`}))
			d.document(kind, key.Draw(t, "project"), key.Draw(t, "name"), value.Draw(t, "value"))
		}
		d.wait()
		want := d.after(d.j.Committed())
		if err := d.j.Close(); err != nil {
			t.Fatalf("%v", err)
		}
		var text, again bytes.Buffer
		if err := export(f, testDir, &text, nil); err != nil {
			t.Fatalf("%v", err)
		}
		for _, line := range bytes.Split(bytes.TrimSpace(text.Bytes()), []byte("\n")) {
			if !json.Valid(line) {
				t.Fatalf("not JSON: %s", line)
			}
		}
		to := vfs.NewMem()
		if err := importFrom(to, testDir, bytes.NewReader(text.Bytes()), nil); err != nil {
			t.Fatalf("%v\n%s", err, text.String())
		}
		if err := export(to, testDir, &again, nil); err != nil || again.String() != text.String() {
			t.Fatalf("%v\n%s\n%s", err, text.String(), again.String())
		}
		got, err := reopen(to)
		if err != nil || !got.equal(want) {
			t.Fatalf("%v, %s", err, got.diff(want))
		}
	})
}

// TestExportForm checks the exact form of an export, which other programs read and write.
func TestExportForm(t *testing.T) {
	const text = `{"treadle_journal":2}
{"kind":"setting","key":"timeout","value":"600"}
{"kind":"setting","key_base64":"/w=="}
{"kind":"project","project":"p","state":{"last_id":2}}
{"kind":"numbers","project":"p","name":"j","state":{"duration":4,"step":1}}
{"kind":"definition","project":"p","name":"j","text":"{}"}
{"kind":"progress","project":"p","name_base64":"/w==","text":"{"}
{"kind":"job","seq":1,"space":1,"queue":"echo","name":"a \"b\" \\ \u0001\u000a\u007f <é€𝄞>","sched_at":-5,"due":1700000000000,"priority":9223372036854775807,"count":2,"timeout":-30,"holder":"w1","revision":7,"log":[{"stage":1,"micros":1700000000000000},{"stage":0,"micros":-1}],"after":[2,18446744073709551615],"workload":"{\"n\":1}"}
{"kind":"job","seq":2,"space":255,"queue_base64":"cf8=","name_base64":"/w==","workload_base64":"AP8="}
{"kind":"queue","seq":3,"queue":"echo"}
{"kind":"dropped","seq":4,"queue":"gone"}
{"kind":"edge","seq":5,"queue":"dwork","after":[1],"task":2}
{"kind":"exit","seq":6,"queue":"dwork","name":"w1"}
{"kind":"job","seq":18446744073709551615,"space":1}
`
	f := vfs.NewMem()
	if err := importFrom(f, testDir, strings.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := export(f, testDir, &out, nil); err != nil || out.String() != text {
		t.Fatalf("%v\n%s", err, out.String())
	}
	j, err := Open(testOptions(f))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if j.Stats().Jobs != 7 || j.LastSeq() != 1<<64-1 {
		t.Fatalf("%d jobs, last %d", j.Stats().Jobs, j.LastSeq())
	}
}

// TestImportAccepts checks the forms that other programs may write: other spacing and order,
// escapes, text for base64, no seq, empty lines, no final line end.
func TestImportAccepts(t *testing.T) {
	lines := []string{
		` { "treadle_journal" : 1 } `, ``,
		`{"name":"n","kind":"job","queue":"\u0071\ud834\udd1e\/","space":1,"workload_base64":"aGk="}`, `  `,
		`{"kind":"job","space":2,"due":5}`,
		`{"kind":"setting","value":"","key":""}`,
		`{"kind":"job","space":2,"seq":10,"extra":null,"name":"m"}`,
		`{"kind":"job","space":1}`,
	}
	f := vfs.NewMem()
	if err := importFrom(f, testDir, strings.NewReader(strings.Join(lines, "\r\n")), nil); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := export(f, testDir, &out, nil); err != nil {
		t.Fatal(err)
	}
	want := `{"treadle_journal":2}
{"kind":"setting"}
{"kind":"job","seq":1,"space":1,"queue":"q𝄞/","name":"n","workload":"hi"}
{"kind":"job","seq":2,"space":2,"due":5}
{"kind":"job","seq":10,"space":2,"name":"m"}
{"kind":"job","seq":11,"space":1}
`
	if out.String() != want {
		t.Fatalf("%s", out.String())
	}
}

// TestImportRefuses checks that an invalid import is an error with the line's number, and that
// nothing is imported.
func TestImportRefuses(t *testing.T) {
	const head, head2 = "{\"treadle_journal\":1}\n", "{\"treadle_journal\":2}\n"
	const job = `{"kind":"job","space":1}` + "\n"
	for text, want := range map[string]string{
		"":                               "line 1: missing",
		"\n" + head:                      "line 1:",
		"hello\n":                        "line 1:",
		"{}\n":                           "line 1: an export of version 0",
		`{"treadle_journal":3}` + "\n":   "line 1: an export of version 3; this program knows versions 1 to 2",
		`{"treadle_journal":1,"x":1}`:    `line 1: an unknown member "x"`,
		job:                              `line 1: an unknown member "kind"`,
		head + "{}":                      `line 2: a line of an unknown kind, ""`,
		head + `{"kind":"lock"}`:         `line 2: a line of an unknown kind, "lock"`,
		head + job + job[:9]:             "line 3: unexpected end of JSON input",
		head + `[1]`:                     "line 2:",
		head + job + job + `null`:        "line 4:",
		head + `{"kind":"job"}`:          "line 2: a job without a space",
		head + job + job:                 "jobs with the queue and name of a later job",
		head + `{"kind":"job","x":1}`:    `line 2: an unknown member "x"`,
		head + `{"Kind":"job"}`:          `line 2: an unknown member "Kind"`,
		head + `{"kind":"job","key":""}`: `line 2: an unknown member "key"`,
		head + `{"kind":"job","space":1,"space":1}`:                                            `line 2: the member "space" comes twice`,
		head + `{"kind":"job","sp\u0061ce":1}`:                                                 `line 2: a member's name with an escape`,
		head + `{"kind":"job","space":256}`:                                                    "line 2:",
		head + `{"kind":"job","space":1,"count":2147483648}`:                                   "line 2:",
		head + `{"kind":"job","space":1,"due":1.5}`:                                            "line 2:",
		head + `{"kind":"job","space":1,"name":5}`:                                             "line 2:",
		head + `{"kind":"job","space":1,"name":{"a":1}}`:                                       "line 2:",
		head + `{"kind":"job","space":1,"name":"a","name_base64":"YQ=="}`:                      `line 2: both members "name" and "name_base64"`,
		head + `{"kind":"job","space":1,"name_base64":"?"}`:                                    "line 2:",
		head + `{"kind":"job","space":1,"name":"\ud834"}`:                                      "line 2: half a surrogate pair",
		head + `{"kind":"job","space":1,"name":"\ud834x\udd1e"}`:                               "line 2: half a surrogate pair",
		head + `{"kind":"job","space":1,"name":"\udd1e"}`:                                      "line 2: half a surrogate pair",
		head + `{"kind":"job","space":1,"name":"\ud834\n"}`:                                    "line 2: half a surrogate pair",
		head + "{\"kind\":\"job\",\"space\":1,\"name\":\"\xff\"}":                              "line 2: not UTF-8",
		head + `{"kind":"job","space":1,"seq":5}` + "\n" + `{"kind":"job","space":1,"seq":5}`:  "line 3: the seq 5 is not above the last, 5",
		head + `{"kind":"setting","key":"a"}` + "\n" + `{"kind":"setting","key":"a"}`:          `line 3: the setting "a" comes twice`,
		head + `{"kind":"setting","key":"a","space":1}`:                                        `line 2: an unknown member "space"`,
		head + job + job + "\x00":                                                              "line 4:",
		head + `{"kind":"queue"}`:                                                              `line 2: a line of an unknown kind, "queue"`,
		head + `{"kind":"job","space":4,"workload":"w"}`:                                       "line 2: the stored task",
		head + `{"kind":"job","space":13}`:                                                     "line 2: the stored task",
		head2 + `{"kind":"job","space":1,"extra":"x"}`:                                         `line 2: an unknown member "extra"`,
		head2 + `{"kind":"job","space":1,"log":[{"stage":1,"stage":1}]}`:                       `line 2: the member "stage" comes twice`,
		head2 + `{"kind":"job","space":1,"log":[{"Stage":1}]}`:                                 `line 2: an unknown member "Stage"`,
		head2 + `{"kind":"job","space":1,"log":[7]}`:                                           "line 2:",
		head2 + `{"kind":"job","space":1,"after":[-7]}`:                                        "line 2:",
		head2 + `{"kind":"project","key":"a"}`:                                                 `line 2: an unknown member "key"`,
		head2 + `{"kind":"project","state":{},"text":""}`:                                      `line 2: both members "state" and "text"`,
		head2 + `{"kind":"project","state":[]}`:                                                "line 2: a state that is not a JSON object",
		head2 + `{"kind":"project","project":"p"}` + "\n" + `{"kind":"project","project":"p"}`: `line 3: the project "p " comes twice`,

		head2 + `{"kind":"job","space":1,"lease":{"token":"00"}}`:                              "line 2: the token of a lease is not 32 hexadecimal digits",
		head2 + `{"kind":"job","space":1,"lease":{"token":"` + strings.Repeat("0", 32) + `"}}`: "line 2: the token of a lease is not 32 hexadecimal digits",
		head2 + `{"kind":"job","space":1,"lease":{"until":1.5}}`:                               "line 2:",
		head2 + `{"kind":"job","space":1,"lease":{"Until":1}}`:                                 `line 2: an unknown member "Until"`,
		head2 + `{"kind":"queue","lease":{"token":"` + strings.Repeat("1", 32) + `"}}`:         "line 2: a lease of what is not reserved",
	} {
		f := vfs.NewMem()
		err := importFrom(f, testDir, strings.NewReader(text), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
			continue
		}
		if got, err := reopen(f); err != nil || len(got.jobs)+len(got.settings) > 0 {
			t.Errorf("%q left %d jobs, %v", text, len(got.jobs), err)
		}
	}
}

// TestImportNeedsEmpty checks that an import into a directory with contents is refused and changes
// nothing, and that one into an opened, empty directory continues its numbers.
func TestImportNeedsEmpty(t *testing.T) {
	text := "{\"treadle_journal\":1}\n{\"kind\":\"job\",\"space\":1}\n"
	f := vfs.NewMem()
	d := mustOpen(t, testOptions(f))
	for range 5 {
		d.create(1)
	}
	d.wait()
	for seq := uint64(1); seq <= 5; seq++ {
		d.remove(seq)
	}
	d.wait()
	group := d.j.Committed()
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := importFrom(f, testDir, strings.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, testOptions(f))
	if d.j.epoch != 2 || d.j.Committed() <= group || d.j.LastSeq() != 6 {
		t.Fatalf("epoch %d, group %d after %d, last %d", d.j.epoch, d.j.Committed(), group, d.j.LastSeq())
	}
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	err := importFrom(f, testDir, strings.NewReader(text), nil)
	if err == nil || !strings.Contains(err.Error(), "is not empty (records: 1, settings: 0)") {
		t.Fatal(err)
	}
	if got, err := reopen(f); err != nil || len(got.jobs) != 1 {
		t.Fatal(len(got.jobs), err)
	}
}

// TestExportImportErrors checks that errors of the reader and the writer are returned, and that
// progress is reported.
func TestExportImportErrors(t *testing.T) {
	mine := errors.New("mine")
	f := vfs.NewMem()
	var text strings.Builder
	text.WriteString("{\"treadle_journal\":1}\n")
	const jobs = progressEvery + 5
	for i := range jobs {
		fmt.Fprintf(&text, "{\"kind\":\"job\",\"space\":1,\"name\":\"%d\"}\n", i)
	}
	if err := importFrom(f, testDir, io.MultiReader(strings.NewReader(text.String()), iotest.ErrReader(mine)), nil); !errors.Is(err, mine) {
		t.Fatal(err)
	}
	var reported []string
	report := func(done, total int64) { reported = append(reported, fmt.Sprint(done, "/", total)) }
	if err := importFrom(f, testDir, strings.NewReader(text.String()), report); err != nil || strings.Join(reported, " ") != "16384/0" {
		t.Fatal(reported, err)
	}
	reported = nil
	if err := export(f, testDir, io.Discard, report); err != nil || strings.Join(reported, " ") != "16384/16389 16389/16389" {
		t.Fatal(reported, err)
	}
	if err := export(f, testDir, failingWriter{mine}, nil); !errors.Is(err, mine) || !strings.Contains(err.Error(), "cannot write the export") {
		t.Fatal(err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestExportOfDamage checks that an export of a damaged directory is refused, because it would
// silently lack jobs.
func TestExportOfDamage(t *testing.T) {
	m, _ := groups(t, Always, true)
	name, b := m.liveLog(t)
	bad := bytes.Clone(b)
	bad[logStart+50] ^= 1
	var damage *DamageError
	if err := export(m.with(name, bad).disk(t), testDir, io.Discard, nil); !errors.As(err, &damage) {
		t.Fatal(err)
	}
	refused := 0
	for _, table := range m.names(".sst") {
		bad = bytes.Clone(m[table])
		bad[10] ^= 1
		if err := export(m.with(table, bad).disk(t), testDir, io.Discard, nil); errors.As(err, &damage) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Fatal("no damage of a table was noticed")
	}
}
