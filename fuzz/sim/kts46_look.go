//go:build invariants

package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"treadle/codec/kts46"
)

// kts46TaskShown is a task as version 2 shows it.
type kts46TaskShown struct {
	Project, Job, Type, Sig string
	StartState              *int64
}

// kts46Look asks the server for all projects, jobs and tasks.
func (s *Simulator) kts46Look() *kts46Shown {
	v := &kts46Shown{}
	r, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
	if err != nil {
		s.trace.Failf("cannot make a request: %v", err)
	}
	var status struct {
		WaitingQueue                    []kts46TaskShown
		WaitingActivation, RunningTasks map[string]kts46TaskShown
	}
	s.server.Kts46("kts46-json", r, func(_ int, body []byte) {
		if err := json.Unmarshal(body, &status); err != nil {
			s.trace.Failf("the status page of kts46: got %q, want its JSON: %v", body, err)
		}
	})
	var text strings.Builder
	for _, t := range status.WaitingQueue {
		fmt.Fprintf(&text, "%s/%s %s waits\n", t.Project, t.Job, t.Type)
	}
	for w := range v.revisions {
		id := fmt.Sprint("w", w)
		t, accepted := status.RunningTasks[id]
		if !accepted {
			t = status.WaitingActivation[id]
		}
		if t.Job == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, t.Sig)
		if err != nil {
			s.trace.Failf("the task of %s: got the signature %q, want a time: %v", id, t.Sig, err)
		}
		v.revisions[w] = at.UnixMilli()
		start := int64(-1)
		if t.StartState != nil {
			start = *t.StartState
		}
		fmt.Fprintf(&text, "%s %s/%s %s %d, accepted: %v\n", id, t.Project, t.Job, t.Type, start, accepted)
	}
	v.tasks = text.String()
	v.list = s.kts46Listed()
	return v
}

// kts46Listed reads getServerStatus.
func (s *Simulator) kts46Listed() string {
	r, err := http.NewRequest(http.MethodPost, "/", bytes.NewReader(kts46.AppendCall(nil, "getServerStatus")))
	if err != nil {
		s.trace.Failf("cannot make a request: %v", err)
	}
	var text strings.Builder
	s.server.Kts46("kts46", r, func(_ int, body []byte) {
		v, err := kts46.ReadAnswer(bytes.NewReader(body))
		all, ok := v.([]any)
		if err != nil || !ok {
			s.trace.Failf("getServerStatus: got %q, want a list: %v", body, err)
		}
		project := ""
		for _, e := range all {
			j, _ := e.(kts46.Struct)
			if p := fmt.Sprint(j.Get("project")); p != project {
				if project != "" {
					text.WriteString("\n")
				}
				project = p
				fmt.Fprintf(&text, "%s:", p)
			}
			if j.Get("name") != nil {
				fmt.Fprintf(&text, " %v %v/%v", j.Get("name"), j.Get("done"), j.Get("total"))
			}
		}
		if project != "" {
			text.WriteString("\n")
		}
	})
	return text.String()
}
