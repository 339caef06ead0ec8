package kts46

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// bodies returns the captured requests and answers of version 1.
func bodies(t testing.TB) (requests, answers []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/v1.txt")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), ">>> ") {
		if part == "" {
			continue
		}
		request, answer, ok := strings.Cut(part, "<<< ")
		_, request, ok1 := strings.Cut(request, "\r\n\r\n")
		_, answer, ok2 := strings.Cut(answer, "\r\n\r\n")
		if !ok || !ok1 || !ok2 {
			t.Fatalf("the transcript is broken at %.80q", part)
		}
		requests, answers = append(requests, request), append(answers, answer)
	}
	if len(requests) < 80 {
		t.Fatalf("%d exchanges", len(requests))
	}
	return requests, answers
}

// TestTranscript: what Python 2's xmlrpclib and SimpleXMLRPCServer wrote is read, and written back to the byte.
func TestTranscript(t *testing.T) {
	requests, answers := bodies(t)
	faults, structs := 0, 0
	for i := range requests {
		c, err := ReadCall(strings.NewReader(requests[i]))
		if err != nil {
			t.Fatalf("call %d: %v\n%s", i, err, requests[i])
		}
		if got := string(AppendCall(nil, c.Method, c.Params...)); got != requests[i] {
			t.Errorf("call %d: got\n%s\nwant\n%s", i, got, requests[i])
		}
		v, err := ReadAnswer(strings.NewReader(answers[i]))
		var got []byte
		var fault *Fault
		switch {
		case errors.As(err, &fault):
			got = AppendFault(nil, fault)
			faults++
		case err != nil:
			t.Fatalf("answer %d: %v\n%s", i, err, answers[i])
		default:
			got = AppendAnswer(nil, v)
			if _, ok := v.(Struct); ok {
				structs++
			}
		}
		if !bytes.Equal(got, []byte(answers[i])) {
			t.Errorf("answer %d: got\n%s\nwant\n%s", i, got, answers[i])
		}
	}
	if faults < 10 || structs < 10 {
		t.Errorf("%d faults and %d structs prove little", faults, structs)
	}
}
