package admin

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzLeased: the answer to a reserve is, byte for byte, what encoding/json makes of it.
func FuzzLeased(f *testing.F) {
	f.Add("00010203-04", "mail", "a\"b\\c\x00\x1f\x7f\b\f\n\r\t", []byte{0xff, 0}, int64(-3), true)
	f.Add("", "<\u2028\u2029&>", "é漢😀\xff\xc3", []byte(nil), int64(0), false)
	f.Fuzz(func(t *testing.T, token, queue, text string, data []byte, number int64, set bool) {
		job := LeasedJob{Token: token, Broadcast: set, Until: number, Queue: queue, QueueBytes: data, Name: text, Priority: number, At: number}
		if set {
			job.Workload = &text
		} else {
			job.NameBytes, job.WorkloadBytes = data, data
		}
		for _, jobs := range [][]LeasedJob{{}, {job}, {job, {}, job}} {
			l := Leased{Jobs: jobs}
			var want bytes.Buffer
			e := json.NewEncoder(&want)
			e.SetEscapeHTML(false)
			if err := e.Encode(&l); err != nil {
				t.Fatal(err)
			}
			if got := append(l.AppendJSON(nil), '\n'); !bytes.Equal(got, want.Bytes()) {
				t.Fatalf("%s, encoding/json has %s", got, want.Bytes())
			}
		}
	})
}

// FuzzDoneReport: a report that is plain is what encoding/json makes of it.
func FuzzDoneReport(f *testing.F) {
	f.Add([]byte(`{"token":"1-a","result":"a\n\u00e9"}`))
	f.Add([]byte(`{"Token":"1-a"} `))
	f.Add([]byte(` {"token" : "1" , "token":"2","result":"\ud800"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var plain, want DoneReport
		if !plain.ParsePlain(text) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil || !reflect.DeepEqual(plain, want) {
			t.Fatalf("%q became %+v, encoding/json has %+v, %v", text, plain, want, err)
		}
	})
}

// TestDoneReportPlain: the forms that many reports come in are plain.
func TestDoneReportPlain(t *testing.T) {
	for text, plain := range map[string]bool{
		`{"token":"1-a"}`: true, `{"token":"1-a","result":"a\"b"}`: true, `{}`: true,
		`{"token":"1-a","result_b64":"AA=="}`: false, `{"token":null}`: false, `{"token":"1"} {}`: false, `[]`: false,
	} {
		if got := new(DoneReport).ParsePlain([]byte(text)); got != plain {
			t.Errorf("%s: %v", text, got)
		}
	}
}
