package page

import (
	"cmp"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	codec "treadle/codec/admin"
)

// typedAbove is the number of jobs above which a person types the number before they are changed.
const typedAbove = 1000

// outcome is the result of a form: a notice, and the page that shows it.
type outcome struct {
	to string
	notice
}

// formActions are what forms ask for, by the last part of their paths.
var formActions = map[string]func(*Pages, *http.Request) (outcome, error){
	"jobs":       (*Pages).changeJobs,
	"queue":      (*Pages).changeQueue,
	"connection": (*Pages).closeConnection,
	"cron":       (*Pages).changeCron,
	"operation":  (*Pages).cancelOperation,
	"submit":     (*Pages).submitJob,
}

// errReadOnly refuses a form.
var errReadOnly = errors.New("these pages are read only (--web read-only): nothing was changed")

// handleForm does what a form asks for. The browser is then sent to a page that says what came of it.
func (s *Pages) handleForm(w http.ResponseWriter, r *http.Request) {
	do := formActions[r.PathValue("what")]
	switch err := r.ParseForm(); {
	case !s.write:
		http.Error(w, errReadOnly.Error(), http.StatusForbidden)
		return
	case do == nil:
		http.NotFound(w, r)
		return
	case err != nil:
		http.Error(w, "the form cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	if by := r.PostForm.Get("by"); by != "" && len(by) <= shortName {
		s.setCookie(w, nameCookie, url.QueryEscape(by))
	}
	o, err := do(s, r)
	if err != nil {
		o.notice = notice{Text: sentence(err.Error()), Failed: true}
	}
	o.to = cmp.Or(o.to, s.back(r.PostForm.Get("back"), "/"))
	http.Redirect(w, r, withQuery(o.to, noticeParameter, s.notices.put(&o.notice)), http.StatusSeeOther)
}

// nameCookie keeps the name that a person has given with a change.
const nameCookie = "treadle-name"

// nameOf returns that name.
func nameOf(r *http.Request) string {
	if c, err := r.Cookie(nameCookie); err == nil {
		if name, err := url.QueryUnescape(c.Value); err == nil && utf8.ValidString(name) {
			return name
		}
	}
	return ""
}

// sentence makes a message of the API a sentence.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// bytesOf returns the bytes that a field of a form has in hexadecimal.
func bytesOf(r *http.Request, field string) (string, error) {
	raw, err := hex.DecodeString(r.PostForm.Get(field))
	if err != nil {
		return "", errors.New("the form cannot be read: " + err.Error())
	}
	return string(raw), nil
}

// verbs are the changes of jobs, and how they are told.
var verbs = map[string]struct{ Ask, Button, Done string }{
	codec.VerbRetry:    {"Retry", "Retry", "made ready again"},
	codec.VerbRun:      {"Run", "Run now", "made ready now"},
	codec.VerbRemove:   {"Remove", "Remove", "removed"},
	codec.VerbPriority: {"Change the priority of", "Change", "given the priority"},
	codec.VerbDue:      {"Change the due time of", "Change", "given the due time"},
	codec.VerbMove:     {"Move", "Move", "moved"},
}

// changeJobs changes the jobs of ids, or starts an operation on those of a filter.
func (s *Pages) changeJobs(r *http.Request) (o outcome, err error) {
	form := r.PostForm
	verb, filter, ids := form.Get("do"), strings.TrimSpace(form.Get("filter")), form["id"]
	if _, known := verbs[verb]; !known {
		return o, errors.New("choose what to do with the jobs")
	}
	change := map[string]any{"verb": verb, "by": form.Get("by"), "why": form.Get("why")}
	switch verb {
	case codec.VerbPriority:
		n, err := strconv.ParseInt(strings.TrimSpace(form.Get("priority")), 10, 64)
		if err != nil {
			return o, errors.New("the priority is a whole number")
		}
		change["priority"] = n
	case codec.VerbDue:
		change["delay"] = cmp.Or(strings.TrimSpace(form.Get("delay")), "0s")
	case codec.VerbMove:
		change["to"] = form.Get("to")
	}
	if filter != "" {
		change["filter"] = filter
		return s.changeMatching(r, verb, filter, change)
	}
	if len(ids) == 0 {
		return o, errors.New("choose jobs first: none was selected")
	}
	change["ids"] = ids
	var answer codec.JobsChanged
	if err := s.api.post(r, &answer, "/jobs/change", change); err != nil {
		return o, err
	}
	o.Failed = answer.Changed == 0
	o.Text = plural(answer.Changed, "job") + " " + verbs[verb].Done + "."
	if len(ids) == 1 && len(answer.Left) == 1 {
		o.Text = sentence(answer.Left[0].Error)
		return o, nil
	}
	for _, left := range answer.Left[:min(len(answer.Left), maxItems)] {
		o.Items = append(o.Items, left.ID+": "+left.Error)
	}
	if more := len(answer.Left) - len(o.Items); more > 0 {
		o.Items = append(o.Items, "and "+number(more)+" more")
	}
	return o, nil
}

// maxItems bounds the lines of a notice.
const maxItems = 10

// changeMatching starts an operation when the person has confirmed the number of jobs, else it asks.
func (s *Pages) changeMatching(r *http.Request, verb, filter string, change map[string]any) (o outcome, err error) {
	if !utf8.ValidString(filter) {
		return o, errors.New("a name in the filter is not UTF-8: select the jobs in the list")
	}
	count, err := s.count(r, verb, filter)
	if err != nil {
		return o, err
	}
	if asked := r.PostForm.Get("count"); count.Matched > typedAbove || count.More {
		typed := strings.NewReplacer(",", "", " ", "").Replace(r.PostForm.Get("typed"))
		if asked == "" || typed != asked || !count.More && asked != strconv.Itoa(count.Matched) {
			o.to = s.url("/confirm", "do", verb, "filter", filter, "back", r.PostForm.Get("back"))
			return o, errors.New("nothing was changed: type the number of jobs to confirm")
		}
	}
	var started codec.OperationStarted
	if err := s.api.post(r, &started, "/jobs/change", change); err != nil {
		return o, err
	}
	o.to, o.Text = s.url("/operation", "id", started.Operation), "Started."
	return o, nil
}

// count returns how many jobs a filter means.
func (s *Pages) count(r *http.Request, verb, filter string) (count codec.JobsMatched, err error) {
	change := map[string]any{"verb": verb, "filter": filter, "dry_run": true}
	switch verb { // what is counted needs no values
	case codec.VerbPriority:
		change["priority"] = 0
	case codec.VerbDue:
		change["delay"] = "0s"
	case codec.VerbMove:
		change["to"] = "any"
	}
	err = s.api.post(r, &count, "/jobs/change", change)
	return count, err
}

// changeQueue pauses, resumes or empties a queue.
func (s *Pages) changeQueue(r *http.Request) (o outcome, err error) {
	queue, err := bytesOf(r, "queue")
	if err != nil {
		return o, err
	}
	if !isExactName(queue) {
		return o, errNotExact
	}
	change := codec.QueueChange{Queue: queue, RequestedBy: codec.RequestedBy{By: r.PostForm.Get("by"), Why: r.PostForm.Get("why")}}
	switch do := r.PostForm.Get("do"); do {
	case "pause":
		if change.What = r.PostForm.Get("what"); change.What == "both" {
			o.Text = "Paused: it takes no jobs and hands out none."
		} else if o.Text = "Paused: it hands out no jobs."; change.What == "submits" {
			o.Text = "Paused: it takes no new jobs, and the others are done."
		}
		return o, s.api.post(r, nil, "/queues/pause", change)
	case "resume":
		o.Text = "Resumed."
		return o, s.api.post(r, nil, "/queues/resume", change)
	}
	return o, errors.New("choose what to do with the queue")
}

// isExactName reports whether a request or a filter can name the queue alone: a name with * or ? is a pattern.
func isExactName(queue string) bool {
	return utf8.ValidString(queue) && !strings.ContainsAny(queue, "*?")
}

var errNotExact = errors.New("the name of the queue has *, ? or bytes that are not UTF-8, so that it would mean other queues, too: select jobs in the list, or set a policy by a pattern")

func (s *Pages) closeConnection(r *http.Request) (o outcome, err error) {
	o.to, o.Text = s.root+"/connections", "The connection was closed; jobs that its worker had are ready again."
	return o, s.api.post(r, nil, "/connections/close", codec.Close{ID: r.PostForm.Get("id")})
}

// changeCron runs, pauses or resumes a cron entry.
func (s *Pages) changeCron(r *http.Request) (o outcome, err error) {
	entry, err := bytesOf(r, "entry")
	if err != nil {
		return o, err
	}
	verb := r.PostForm.Get("do")
	done := map[string]string{"run": "Its job was submitted.", "pause": "Paused: its times are left out.", "resume": "Resumed."}
	if o.Text = done[verb]; o.Text == "" {
		return o, errors.New("choose what to do with the entry")
	}
	return o, s.api.post(r, nil, "/cron/"+verb, codec.CronChange{Entry: entry, RequestedBy: codec.RequestedBy{By: nameOf(r)}})
}

func (s *Pages) cancelOperation(r *http.Request) (o outcome, err error) {
	id := r.PostForm.Get("id")
	o.to, o.Text = s.url("/operation", "id", id), "Cancelled: the jobs that were changed stay changed."
	return o, s.api.post(r, nil, "/operations/cancel", codec.Cancel{Operation: id})
}

// submitJob submits a job.
func (s *Pages) submitJob(r *http.Request) (o outcome, err error) {
	form := r.PostForm
	job := map[string]any{"queue": form.Get("queue"), "name": form.Get("name"), "workload": strings.ReplaceAll(form.Get("workload"), "\r\n", "\n")}
	if text := strings.TrimSpace(form.Get("delay")); text != "" {
		job["delay"] = text
	}
	if text := strings.TrimSpace(form.Get("priority")); text != "" {
		if job["priority"], err = strconv.ParseInt(text, 10, 64); err != nil {
			return o, errors.New("the priority is a whole number")
		}
	}
	var answer codec.Submitted
	if err := s.api.post(r, &answer, "/jobs", job); err != nil {
		return o, err
	}
	o.to, o.Text = s.url("/queue", "queue", answer.Queue+string(answer.QueueBytes)), "Submitted: "+plain(answer.Name+string(answer.NameBytes))+"."
	return o, nil
}
