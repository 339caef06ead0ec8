package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/web"
)

// Bounds of the audit.
const (
	// maxAudit bounds the records that are kept: a few hundred bytes each.
	maxAudit = 1000
	// maxAuditText bounds the bytes of a text of a record.
	maxAuditText = 512
	// maxAuditIDs is how many jobs a record names.
	maxAuditIDs = 3
)

// auditPrefix is in front of the place of a record in the journal's key. The places are used again, so that the journal
// has the last maxAudit records.
const auditPrefix = "audit."

// auditLog is the last changes that were made through the API.
type auditLog struct {
	mu   sync.Mutex
	last uint64
	all  []codec.AuditRecord // the oldest first
}

// auditor is the person or program that has asked for a change: as the request says, and as the server knows.
type auditor struct {
	by, user, from, agent string
	uid                   *int64
}

// auditorOf returns the sender of a request. On the socket the system knows the user of its process.
func (api *API) auditorOf(r *http.Request, by string) auditor {
	a := auditor{by: by, from: r.RemoteAddr, agent: r.UserAgent()}
	if uid, ok := web.PeerUser(r); ok {
		n := int64(uid)
		a.from, a.uid, a.user = "socket", &n, strconv.FormatInt(n, 10)
		if u, err := user.LookupId(a.user); err == nil {
			a.user = u.Username
		}
	}
	return a
}

// name returns the name that others are told, as in a pause.
func (a *auditor) name() string { return cmp.Or(a.by, a.user) }

// audit adds a record of a change, and journals and logs it.
func (api *API) audit(who auditor, a codec.AuditRecord) {
	a.At, a.By, a.User, a.UID, a.From, a.Agent = api.host.Now().Wall, who.by, who.user, who.uid, who.from, who.agent
	for _, text := range []*string{&a.By, &a.User, &a.From, &a.Agent, &a.Request, &a.Target, &a.Why} {
		if *text = strings.ToValidUTF8(*text, "�"); len(*text) > maxAuditText {
			*text = strings.ToValidUTF8((*text)[:maxAuditText], "") + "..."
		}
	}
	l := &api.audited
	l.mu.Lock()
	l.last++
	a.Number = l.last
	l.add(a)
	value, _ := json.Marshal(&a)
	api.host.PutSetting(auditPrefix+strconv.FormatUint(a.Number%maxAudit, 10), value)
	l.mu.Unlock()
	api.host.FlushLater()
	api.host.Log().Info("audit", "by", a.By, "user", a.User, "from", a.From, "agent", a.Agent, "request", a.Request, "target", a.Target,
		"count", a.Count, "why", a.Why)
}

// add adds a record in the place of the oldest.
func (l *auditLog) add(a codec.AuditRecord) {
	if l.all = append(l.all, a); len(l.all) > maxAudit {
		l.all = slices.Delete(l.all, 0, len(l.all)-maxAudit)
	}
}

// restore takes a record from the journal, in any order.
func (l *auditLog) restore(value []byte) error {
	var a codec.AuditRecord
	if err := json.Unmarshal(value, &a); err != nil {
		return fmt.Errorf("a record of the audit in the journal: %w", err)
	}
	at, _ := slices.BinarySearchFunc(l.all, a.Number, func(b codec.AuditRecord, n uint64) int { return cmp.Compare(b.Number, n) })
	l.all = slices.Insert(l.all, at, a)
	l.last = max(l.last, a.Number)
	return nil
}

// auditSubject is what a body may say of what is to be changed, by whom and why.
type auditSubject struct {
	Verb, Pattern, Queue, Entry, Name, Filter, What, To, Operation, ID string

	QueueBytes []byte `json:"queue_b64"`
	NameBytes  []byte `json:"name_b64"`
	ToBytes    []byte `json:"to_b64"`
	IDs        []string
	Values     map[string]*string
	By, Why    string

	Priority       *int64
	At             codec.Moment
	Delay          *codec.Duration
	Schedule, Zone string
}

// target names what is to be changed.
func (s *auditSubject) target() string {
	words := []string{s.Verb}
	if s.Priority != nil && (s.Verb != "" || *s.Priority != 0) { // 0 is usual of a cron entry
		words = append(words, strconv.FormatInt(*s.Priority, 10))
	}
	if s.Delay != nil {
		words = append(words, "in "+time.Duration(*s.Delay).String())
	}
	if !s.At.IsZero() {
		words = append(words, s.At.UTC().Format(time.RFC3339))
	}
	words = append(words, s.What, s.Pattern, s.Entry, s.Queue+string(s.QueueBytes), s.Name+string(s.NameBytes), s.Filter, s.Operation, s.ID)
	for n, id := range s.IDs {
		if n == maxAuditIDs {
			words = append(words, fmt.Sprintf("and %d more", len(s.IDs)-n))
			break
		}
		words = append(words, id)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		if value := s.Values[key]; value != nil {
			words = append(words, key+"="+*value)
		} else {
			words = append(words, "without "+key)
		}
	}
	if to := s.To + string(s.ToBytes); to != "" {
		words = append(words, "to "+to)
	}
	if s.Schedule != "" {
		words = append(words, strconv.Quote(s.Schedule), s.Zone)
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// auditing returns the handler of a request that changes something, which leaves a record when it did.
func (api *API) auditing(pattern string, answer func(*http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		v, err := answer(r)
		if err != nil {
			return nil, err
		}
		count, changed := changedBy(v)
		if !changed {
			return v, nil
		}
		var s auditSubject
		_ = json.Unmarshal(body, &s) // the handler has read it; members that are of another kind there are left out
		target := s.target()
		if reloaded, ok := v.(*codec.SettingChanges); ok {
			target = changesText(reloaded.Changes)
		}
		api.audit(api.auditorOf(r, s.By), codec.AuditRecord{Request: pattern, Target: target, Count: count, Why: s.Why})
		if op, ok := v.(*operation); ok {
			return op.begin(), nil
		}
		return v, nil
	}
}

// changesText names what a reload has changed, until the text is as long as that of a record.
func changesText(all []codec.SettingChange) string {
	var b strings.Builder
	for n, c := range all {
		if b.Len() > maxAuditText {
			break
		}
		if n > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s -> %s", c.Name, cmp.Or(c.Before, "-"), cmp.Or(c.After, "-"))
	}
	return b.String()
}

// changedBy returns how many jobs an answer says were changed, and whether anything was.
func changedBy(answer any) (jobs int, changed bool) {
	switch a := answer.(type) {
	case *codec.JobsChanged:
		return a.Changed, a.Changed > 0
	case *codec.JobsMatched: // a dry run
		return 0, false
	case *codec.Rule:
		return 0, a.Changed
	case *codec.SettingChanges:
		return 0, len(a.Changes) > 0
	}
	return 0, true
}

// getAudit answers GET /audit with a page of the audit log, the latest entries first.
func (api *API) getAudit(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q.Get("limit"), defaultPage)
	if err != nil {
		return nil, err
	}
	before := ^uint64(0)
	if after := q.Get("after"); after != "" {
		if before, err = strconv.ParseUint(after, 10, 64); err != nil {
			return nil, badf("after must be the next of an earlier page")
		}
	}
	answer := &codec.Audit{Records: []codec.AuditRecord{}}
	api.audited.mu.Lock()
	defer api.audited.mu.Unlock()
	for _, a := range slices.Backward(api.audited.all) {
		switch {
		case a.Number >= before:
		case len(answer.Records) == limit:
			answer.Next = strconv.FormatUint(answer.Records[limit-1].Number, 10)
			return answer, nil
		default:
			answer.Records = append(answer.Records, a)
		}
	}
	return answer, nil
}
