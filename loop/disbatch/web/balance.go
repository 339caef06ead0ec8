package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// The settings of queue balance, a program of the original that changes the limits of queues by the hour: their routes
// of 4.1 and their page.

// queueNames returns the distinct names of the queues in order.
func (c *commandInterface) queueNames(ctx context.Context) ([]string, error) {
	queues, err := c.store.Queues(ctx)
	names := make([]string, 0, len(queues))
	for i := range queues {
		names = append(names, queues[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// getBalance returns the settings of queue balance.
func (c *commandInterface) getBalance(r *http.Request, _ params) reply {
	names, err := c.queueNames(r.Context())
	if err != nil {
		return c.databaseError("get current queues", err).reply()
	}
	body := object{"known_queues": names, "settings": c.config.Balance}
	if c.config.Balance == nil {
		body["settings"] = nil
	}
	doc, err := c.store.Balance(r.Context())
	if errors.Is(err, store.ErrNotFound) {
		body["notice"] = "balance document not found"
		return reply{status: http.StatusOK, body: body, pretty: true}
	}
	if err != nil {
		return c.databaseError("get the balance document", err).reply()
	}
	elements, _ := doc.Elements() // elements before damage
	fields := bson.D{}
	for _, e := range elements {
		if e.Key() != "_id" {
			fields = append(fields, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	plain, err := bson.Marshal(fields)
	if err != nil {
		return c.databaseError("read the balance document", err).reply()
	}
	return reply{status: http.StatusOK, body: documentJSON(plain, body), pretty: true}
}

// postBalance changes the settings of queue balance.
func (c *commandInterface) postBalance(r *http.Request, p params) reply {
	return answer(object{"status": "success: queuebalance modified"}, c.setBalance(r.Context(), p.fields))
}

// setBalance checks the settings of queue balance and writes them. The error has the member status, as in the original.
func (c *commandInterface) setBalance(ctx context.Context, given bson.D) *requestError {
	names, err := c.queueNames(ctx)
	if err != nil {
		return c.databaseError("get current queues", err)
	}
	fields, err := balanceOf(given, names, time.Now())
	if err != nil {
		refusal := badRequest("failed: invalid json passed %v", err)
		refusal.member = "status"
		return refusal
	}
	if err := c.store.SetBalance(ctx, fields); err != nil {
		return c.databaseError("modify queuebalance", err)
	}
	return nil
}

// balances reports whether the configuration enables queue balance.
func (c *commandInterface) balances() bool {
	var settings struct {
		Enabled config.Truth `json:"enabled"`
	}
	return json.Unmarshal(c.config.Balance, &settings) == nil && bool(settings.Enabled)
}

var (
	balanceName = regexp.MustCompile(`\A[\w-]+\z`)
	balanceTime = regexp.MustCompile(`\A[*0-6] ([01][0-9]|2[0-3]):[0-5][0-9]\z`)
)

// balanceOf validates settings of queue balance. queues are arrays of names by priority, max_tasks are limits by
// weekday and time, disabled is the end of a pause in Unix seconds.
func balanceOf(given bson.D, known []string, now time.Time) (bson.D, error) {
	if name, ok := unknown(given, "disabled", "max_tasks", "queues"); ok {
		return nil, fmt.Errorf("%s is not known", name)
	}
	var out bson.D
	if slices.ContainsFunc(given, func(e bson.E) bool { return e.Key == "disabled" }) {
		until, err := readDisabled(get(given, "disabled"), now)
		if err != nil {
			return nil, err
		}
		out = append(out, bson.E{Key: "disabled", Value: until})
	}
	limits, err := readMaxTasks(get(given, "max_tasks"))
	if err != nil {
		return nil, err
	}
	queues, err := readQueues(get(given, "queues"), known)
	if err != nil {
		return nil, err
	}
	return append(out, bson.E{Key: "max_tasks", Value: limits}, bson.E{Key: "queues", Value: queues}), nil
}

// readDisabled returns the end of a pause in Unix seconds: nil for null, 0, or a time after now.
func readDisabled(v any, now time.Time) (until any, err error) {
	if v == nil {
		return nil, nil
	}
	second, ok := nonNegative(v)
	if !ok || second != 0 && second < now.Unix() {
		return nil, errors.New("disabled is a time to come, in seconds")
	}
	return second, nil
}

// readMaxTasks returns the limits by weekday and time.
func readMaxTasks(v any) (bson.D, error) {
	given, ok := v.(bson.D)
	if !ok {
		return nil, errors.New("max_tasks must be a name/value object")
	}
	limits := bson.D{}
	for _, e := range given {
		n, ok := threadLimit(e.Value)
		if !ok || !balanceTime.MatchString(e.Key) {
			return nil, fmt.Errorf("max_tasks: %q: say \"DAY HH:MM\", 0 to 6 or * for the day, and a non-negative integer", e.Key)
		}
		limits = append(limits, bson.E{Key: e.Key, Value: int32(n)})
	}
	return limits, nil
}

// readQueues returns the arrays of names of known queues. No name may occur twice.
func readQueues(v any, known []string) (bson.A, error) {
	levels, ok := v.(bson.A)
	seen := make(map[string]bool)
	for i := 0; ok && i < len(levels); i++ {
		var names bson.A
		names, ok = levels[i].(bson.A)
		for _, v := range names {
			name, isText := v.(string)
			if !isText || !balanceName.MatchString(name) || seen[name] || !slices.Contains(known, name) {
				return nil, fmt.Errorf("queues: %q must be the name of a queue, and stand there once", scalar(v))
			}
			seen[name] = true
		}
	}
	if !ok {
		return nil, errors.New("queues must be an array of arrays of names")
	}
	return levels, nil
}

// balancePage shows the settings of queue balance, and the refusal of a form, unless that is nil.
func (c *commandInterface) balancePage(w http.ResponseWriter, r *http.Request, refusal *requestError) {
	page := struct {
		pageData
		Queues, MaxTasks, Disabled, Known string
		Enabled                           bool
	}{pageData: c.pageData("Queue balance", "/balance"), Enabled: c.balances()}
	names, err := c.queueNames(r.Context())
	doc, berr := c.store.Balance(r.Context())
	if berr != nil && !errors.Is(berr, store.ErrNotFound) {
		err = berr
	}
	if err != nil {
		refusal = c.pageError("read queue balance", err)
	}
	page.Known = strings.Join(names, ", ")
	for _, level := range elementsOf(doc, "queues") {
		page.Queues += strings.Join(store.Texts(level.Value()), ",") + "\n"
	}
	for _, e := range elementsOf(doc, "max_tasks") {
		n, _ := store.Integer(e.Value())
		page.MaxTasks += e.Key() + " " + strconv.FormatInt(n, 10) + "\n"
	}
	if until := store.Instant(doc.Lookup("disabled")); until.After(time.Now()) {
		page.Disabled = until.UTC().Format(time.DateTime)
	}
	render(w, page.show(refusal), "balance", page)
}

// elementsOf returns the elements of a document or array field.
func elementsOf(doc bson.Raw, field string) []bson.RawElement {
	v := doc.Lookup(field)
	inner, ok := v.DocumentOK()
	if array, isArray := v.ArrayOK(); isArray {
		inner, ok = array, true
	}
	if !ok {
		return nil
	}
	elements, _ := inner.Elements() // elements before damage
	return elements
}

// formBalance applies the page's form, whose queues and limits are lines of text.
func (c *commandInterface) formBalance(w http.ResponseWriter, r *http.Request) {
	form, err := readParams(r)
	queues, limits := bson.A{}, bson.D{}
	for line := range strings.Lines(form.text("queues")) {
		level := bson.A{}
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				level = append(level, name)
			}
		}
		if len(level) > 0 {
			queues = append(queues, level)
		}
	}
	for line := range strings.Lines(form.text("max_tasks")) {
		words := strings.Fields(line)
		if len(words) > 0 {
			last := len(words) - 1
			limits = append(limits, bson.E{Key: strings.Join(words[:last], " "), Value: words[last]})
		}
	}
	given := bson.D{{Key: "max_tasks", Value: limits}, {Key: "queues", Value: queues}}
	if minutes, ok := nonNegative(get(form.fields, "minutes")); ok && minutes > 0 {
		given = append(given, bson.E{Key: "disabled", Value: time.Now().Add(time.Duration(min(minutes, 7*24*60)) * time.Minute).Unix()})
	} else if perlTrue(get(form.fields, "enable")) {
		given = append(given, bson.E{Key: "disabled", Value: nil})
	}
	var refusal *requestError
	if err != nil {
		refusal = badRequest("%v", err)
	} else {
		refusal = c.setBalance(r.Context(), given)
	}
	if refusal == nil {
		http.Redirect(w, r, "/balance", http.StatusSeeOther)
		return
	}
	c.balancePage(w, r, refusal)
}
