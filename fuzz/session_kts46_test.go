//go:build invariants

package fuzz

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"treadle/codec/kts46"
	"treadle/loop"
)

// The peers of a kts46 script: a connection of each version, kept for one call after the other.
const (
	kts46XML = iota
	kts46JSON
)

var kts46Ports = []string{"kts46", "kts46-json"}

// A kts46 script is text, so that the fuzzer can put in what it has found in it: steps end with stepEnd, and begin with
// a letter each. c and j are calls of version 1 and 2: a method and arguments that are strings, each behind argument; C
// and J are the bodies of calls, r and s bytes of each connection. G asks for the status, - hangs up the connection
// that a 1 or 2 names, . lets as many seconds pass as bytes follow.
const (
	stepEnd  = "\n;"
	argument = "|"
)

// lastStamp finds what a worker has to say with its next report: the last time that its connection was sent. An
// argument that is lastStampText stands for it.
var lastStamp = []*regexp.Regexp{regexp.MustCompile(`<dateTime.iso8601>([^<]*)<`), regexp.MustCompile(`"sig":"([^"]*)"`)}

const lastStampText = "@"

// kts46Call is a step that posts a call.
func kts46Call(peer int, words []string) func(*sessions, int) {
	return func(s *sessions, _ int) {
		s.connected(peer, true)
		args := make([]any, len(words)-1)
		for i, word := range words[1:] {
			args[i] = word
			if json.Valid([]byte(word)) && peer == kts46JSON {
				args[i] = json.RawMessage(word)
			}
			if word != lastStampText {
				continue
			}
			stamp := ""
			if all := lastStamp[peer].FindAllSubmatch(s.record(peer).sent, -1); len(all) > 0 {
				stamp = string(all[len(all)-1][1])
			}
			if args[i] = stamp; peer == kts46XML {
				args[i] = kts46.DateTime(stamp)
			}
		}
		if peer == kts46XML {
			kts46Post(peer, kts46.AppendCall(nil, words[0], args...))(s, peer)
			return
		}
		body, err := json.Marshal(map[string]any{"method": words[0], "params": args, "id": 1})
		if err != nil {
			s.t.Fatal(err)
		}
		kts46Post(peer, body)(s, peer)
	}
}

// kts46Post is a step that posts a body.
func kts46Post(peer int, body []byte) func(*sessions, int) {
	path := []string{"/RPC2", "/jsonrpc"}[peer]
	return request(fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body))
}

func kts46Script(text string) (script []step) {
	for part := range strings.SplitSeq(text, stepEnd) {
		if part == "" {
			continue
		}
		kind, rest := part[0], part[1:]
		add := func(peer int, do func(*sessions, int)) { script = append(script, step{peer: peer, do: do}) }
		switch kind {
		case 'c':
			add(kts46XML, kts46Call(kts46XML, strings.Split(rest, argument)))
		case 'j':
			add(kts46JSON, kts46Call(kts46JSON, strings.Split(rest, argument)))
		case 'C':
			add(kts46XML, kts46Post(kts46XML, []byte(rest)))
		case 'J':
			add(kts46JSON, kts46Post(kts46JSON, []byte(rest)))
		case 'r':
			add(kts46XML, raw([]byte(rest)))
		case 's':
			add(kts46JSON, raw([]byte(rest)))
		case 'G':
			add(kts46JSON, request([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")))
		case '-':
			add(min(strings.Count(rest, "2"), 1), hangUp)
		case '.':
			add(kts46XML, wait(time.Duration(len(rest))*time.Second))
		}
	}
	return script
}

// checkAnswers: a connection was sent whole answers of HTTP. Each is an answer of its version; there is one for each
// call when it sent nothing else.
func checkAnswers(t *testing.T, peer int, l connRecord) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(l.sent))
	answers := 0
	for ; ; answers++ {
		if _, err := in.Peek(1); err != nil {
			break
		}
		r, err := http.ReadResponse(in, nil)
		if err == nil {
			err = judged(peer, r, l.raw)
		}
		if err != nil && !l.raw {
			t.Fatalf("a call is answered badly: %v: %q", err, l.sent)
		}
		if err != nil {
			return // to a HEAD, behind which nothing can be told apart
		}
	}
	if !l.raw && answers != l.asked {
		t.Fatalf("%d calls have %d answers: %q", l.asked, answers, l.sent)
	}
}

// judged says what is wrong with an answer. Some are HTTP's own when raw bytes were sent.
func judged(peer int, r *http.Response, raw bool) error {
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return err
	case raw && strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain"), raw && len(body) == 0:
		return nil
	case r.StatusCode != http.StatusOK && (peer == kts46XML || r.StatusCode != http.StatusInternalServerError):
		return errors.New("the status is " + r.Status)
	case peer == kts46JSON && len(body) > 0 && !json.Valid(body):
		return fmt.Errorf("%q is no JSON", body)
	case peer == kts46XML:
		if _, err := kts46.ReadAnswer(bytes.NewReader(body)); err != nil && !errors.As(err, new(*kts46.Fault)) {
			return err
		}
	}
	return nil
}

// FuzzKts46Session: users, workers and supervisors of both versions of kts46 over connections that are kept, with calls
// that may be anything, and bytes that may be no HTTP. No call meets a mistake of the server's.
func FuzzKts46Session(f *testing.F) {
	join := func(steps ...string) { f.Add(strings.Join(steps, stepEnd)) }
	const job = "caddJob|p|j|simulationParameters:\n  duration: 2\n  stepDuration: 0.5\n  batchLength: 2\n"
	join("ccreateProject|p", job, "crunJob|p|j", "cgetJob|w", "creportStatus|w|working|@", "creportStatus|w|finished|@", "cgetJob|w", ".aaa", "crestartTask|w|@", "cgetServerStatus", "cgetJobStatus|p|j", "cdeleteProject|p")
	join("ccreateProject|p", job, "jaddTask|p|j", `jgetTask|w|["simulation"]`, "jacceptTask|w|@", "jtaskInProgress|w|@", "jtaskFinished|w|@", "G", `jgetTask|w|["simulation"]`, "jrejectTask|w|@", "cgetCurrentTasks", "jabortTask|p|j", "-1", "-2", "cgetNewJobId|p")
	join("ccreateProject|p", job, "jaddTask|p|j", "cgetJob|v", "jtaskFinished|v|@", "creportStatus|v|abort|@", `jgetTask|w|["simulation"]`, `jrestartTasks|[{"id":"w","sig":"x"}]`, "cdeleteJob|p|j", "cgetJobsList|p", "cgetProjectStatus|p", "cprojectExists|q", "cjobExists|p|j")
	join("rPOST /RPC2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n<a/>", "r\nPOST / HTTP/1.0\r\nContent-Length: 99999999999\r\n\r\n", "sHEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", "sPUT /jsonrpc HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n", "G")
	for i, body := range kts46Bodies(f) {
		kind := "C"
		if !strings.HasPrefix(body, "<") {
			kind = "J"
		}
		if len(body) < sessionBytes/2 && i%8 == 0 {
			join("ccreateProject|p", kind+body, kind+body)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		var mistakes bytes.Buffer
		o := loop.Options{HandshakeTimeout: time.Hour, FrameTimeout: time.Hour, Log: slog.New(slog.NewTextHandler(&mistakes, &slog.HandlerOptions{Level: slog.LevelError}))}
		script := kts46Script(text[:min(len(text), sessionBytes)])
		for peer, records := range samePieceByPiece(t, o, kts46Ports, make([][]byte, len(kts46Ports)), script, 1+len(text)%97, true) {
			for _, l := range records {
				checkAnswers(t, peer, l)
			}
		}
		if mistakes.Len() > 0 {
			t.Fatal(mistakes.String())
		}
	})
}
