package fuzz

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"treadle/codec/kts46"
)

// kts46Bodies returns every captured body: calls and answers of version 1, requests of version 2.
func kts46Bodies(f *testing.F) (all []string) {
	f.Helper()
	v1, err := os.ReadFile("../codec/kts46/testdata/v1.txt")
	if err != nil {
		f.Fatal(err)
	}
	for part := range strings.SplitSeq(string(v1), "\r\n\r\n") {
		if i := strings.Index(part, "<?xml"); i >= 0 {
			body, _, _ := strings.Cut(part[i:], "<<< ")
			body, _, _ = strings.Cut(body, ">>> ")
			all = append(all, body)
		}
	}
	v2, err := os.ReadFile("../codec/kts46/testdata/v2.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(v2)) {
		if request, _, ok := strings.Cut(line, " -> "); ok {
			all = append(all, request)
		}
	}
	if len(all) < 200 {
		f.Fatalf("%d bodies", len(all))
	}
	return all
}

// FuzzKts46 reads a body as each thing that it may be. What is read and written again is read as the same, and what was
// written so is written the same; a time that is understood is one that is written.
func FuzzKts46(f *testing.F) {
	seen := make(map[string]bool)
	for _, body := range kts46Bodies(f) {
		if !seen[body] {
			seen[body] = true
			f.Add([]byte(body))
		}
	}
	f.Add([]byte("<methodCall><methodName>m</methodName><params><param><value>a&amp;b&lt;c&gt;&#13;\n</value></param><param><value><struct><member>" +
		"<name>&amp;</name><value><array><data><value><double>0.25</double></value><value><nil/></value></data></array></value></member></struct></value></param></params></methodCall>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if c, err := kts46.ReadCall(bytes.NewReader(body)); err == nil {
			text := kts46.AppendCall(nil, c.Method, c.Params...)
			again, err := kts46.ReadCall(bytes.NewReader(text))
			if c.Params == nil {
				c.Params = []any{}
			}
			if err != nil || !reflect.DeepEqual(again, c) {
				t.Fatalf("%#v came back as %#v, %v\n%s", c, again, err, text)
			}
		}
		v, err := kts46.ReadAnswer(bytes.NewReader(body))
		var fault *kts46.Fault
		switch {
		case errors.As(err, &fault):
			_, err := kts46.ReadAnswer(bytes.NewReader(kts46.AppendFault(nil, fault)))
			var again *kts46.Fault
			if !errors.As(err, &again) || *again != *fault {
				t.Fatalf("%#v came back as %v", fault, err)
			}
		case err == nil:
			again, err := kts46.ReadAnswer(bytes.NewReader(kts46.AppendAnswer(nil, v)))
			if err != nil || !reflect.DeepEqual(again, v) {
				t.Fatalf("%#v came back as %#v, %v", v, again, err)
			}
		}
		if r, err := kts46.ParseRequest(body); err == nil && r.ID != nil {
			reply, err := kts46.ParseRequest(kts46.AppendResult(nil, r.ID, r.Params))
			if err != nil || reply.ID == nil {
				t.Fatalf("the reply to %s has the id %s, %v", body, reply.ID, err)
			}
		}
		if at, ok := kts46.DateTime(body).Time(); ok && at.Year() > 0 {
			if again, ok := kts46.NewDateTime(at).Time(); !ok || again.Unix() != at.Unix() {
				t.Fatalf("%q is written %s", body, kts46.NewDateTime(at))
			}
		}
	})
}
