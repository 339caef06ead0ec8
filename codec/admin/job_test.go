package admin

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// TestDuration: a time is seconds or a text with units, and never less than 0 or beyond LongestDuration.
func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`0`: 0, `90`: 90 * time.Second, `0.5`: time.Second / 2, `"500ms"`: time.Second / 2, `"1h30m"`: 90 * time.Minute,
		`"30d"`: 30 * 24 * time.Hour, `"3650d"`: LongestDuration, `"0s"`: 0,
	} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v, %v, want %v", text, time.Duration(d), err, want)
		}
	}
	for _, text := range []string{`-1`, `"-1s"`, `1e300`, `"3651d"`, `"d"`, `"1"`, `""`, `"soon"`, `true`, `[]`, `"99999999999999999999h"`} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s: %v", text, time.Duration(d))
		}
	}
}

// TestMoment: a moment is Unix seconds or a text of RFC 3339.
func TestMoment(t *testing.T) {
	for text, want := range map[string]int64{`0`: 0, `1893488400`: 1893488400, `"2030-01-01T09:00:00Z"`: 1893488400, `"2030-01-01T10:00:00+01:00"`: 1893488400} {
		var m Moment
		if err := json.Unmarshal([]byte(text), &m); err != nil || m.Unix() != want {
			t.Errorf("%s: %v, %v, want %v", text, m, err, want)
		}
	}
	for _, text := range []string{`-1`, `1.5`, `253402300800`, `"tomorrow"`, `"2030-01-01"`, `true`, `""`} {
		var m Moment
		if err := json.Unmarshal([]byte(text), &m); err == nil {
			t.Errorf("%s: %v", text, m)
		}
	}
}

// TestParsePlain: the forms that many jobs come in are plain.
func TestParsePlain(t *testing.T) {
	for text, plain := range map[string]bool{
		`{}`: true, `{"queue":"f","name":"1","workload":"a\"b","delay":"90s","timeout":5,"wait":0,"at":1893488400}`: true,
		`{"queue":"f","workload_json":{"n":[1.50]}}`: true,
		`{"Queue":"f"}`: false, `{"queue":null}`: false, `{"queue":"\ud800"}`: false, `{"queue":"f"} {}`: false, `{"priority":1.0}`: false, `[]`: false,
	} {
		if got := new(Job).ParsePlain([]byte(text)); got != plain {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// FuzzJob: any text is refused or is a job that encodes to one that decodes to the same. What is plain is what
// encoding/json makes of it.
func FuzzJob(f *testing.F) {
	f.Add([]byte(`{"queue":"f","name_b64":"/w==","workload_json":{"n": 1.50},"delay":"90s"}`))
	f.Add([]byte(`{"queue":"f","workload":"\ud800","at":"2030-01-01T10:00:00+01:00","timeout":0.001,"wait":5,"priority":-1}`))
	f.Add([]byte(` {"queue" : "f","workload":"a\n\u00e9","priority":-7,"workload_json": [1, "\ud83d\ude00"] ,"queue":"g"} `))
	f.Fuzz(func(t *testing.T, text []byte) {
		var plain, first, second Job
		isPlain := plain.ParsePlain(text)
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		plain.Queue, plain.Name, plain.Workload = string(plain.QueueBytes), string(plain.NameBytes), string(plain.WorkloadBytes)
		plain.QueueBytes, plain.NameBytes, plain.WorkloadBytes = nil, nil, nil
		if err := d.Decode(&first); isPlain && (err != nil || !reflect.DeepEqual(plain, first)) {
			t.Fatalf("%q became %+v, encoding/json has %+v, %v", text, plain, first, err)
		}
		first = Job{}
		if json.Unmarshal(text, &first) != nil {
			return
		}
		again, err := json.Marshal(&first)
		if err != nil {
			t.Fatalf("%+v: %v", first, err)
		}
		if err := json.Unmarshal(again, &second); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		third, err := json.Marshal(&second)
		if err != nil || string(third) != string(again) {
			t.Fatalf("%s became %s, %v", again, third, err)
		}
	})
}
