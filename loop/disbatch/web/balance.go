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
func (c *dci) queueNames(ctx context.Context) ([]string, error) {
	queues, err := c.store.Queues(ctx)
	names := make([]string, 0, len(queues))
	for i := range queues {
		names = append(names, queues[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// getBalance returns the settings of queue balance.
func (c *dci) getBalance(r *http.Request, _ any) reply {
	names, err := c.queueNames(r.Context())
	if err != nil {
		return c.failed("get current queues", err).reply()
	}
	more := object{"known_queues": names, "settings": c.config.Balance}
	if c.config.Balance == nil {
		more["settings"] = nil
	}
	doc, err := c.store.Balance(r.Context())
	a := success(nil)
	switch a.pretty = true; {
	case errors.Is(err, store.ErrNotFound):
		more["notice"] = "balance document not found"
		a.body = more
	case err != nil:
		return c.failed("get the balance document", err).reply()
	default:
		elements, _ := doc.Elements() // elements before damage
		rest := bson.D{}
		for _, e := range elements {
			if e.Key() != "_id" {
				rest = append(rest, bson.E{Key: e.Key(), Value: e.Value()})
			}
		}
		plain, err := bson.Marshal(rest)
		if err != nil {
			return c.failed("read the balance document", err).reply()
		}
		a.body = documentJSON(plain, more)
	}
	return a
}

// postBalance changes the settings of queue balance.
func (c *dci) postBalance(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	return answer(object{"status": "success: queuebalance modified"}, c.setBalance(r.Context(), given))
}

func (c *dci) setBalance(ctx context.Context, given bson.D) *refusal {
	names, err := c.queueNames(ctx)
	if err != nil {
		return c.failed("get current queues", err)
	}
	fields, err := balanceOf(given, names, time.Now())
	if err != nil {
		fault := bad("failed: invalid json passed %v", err)
		fault.member = "status"
		return fault
	}
	if err := c.store.SetBalance(ctx, fields); err != nil {
		return c.failed("modify queuebalance", err)
	}
	return nil
}

// balances reports whether the configuration enables queue balance.
func (c *dci) balances() bool {
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
		until, ok := whole(get(given, "disabled"))
		switch value := get(given, "disabled"); {
		case value == nil:
			out = append(out, bson.E{Key: "disabled", Value: nil})
		case !ok || until != 0 && until < now.Unix():
			return nil, errors.New("disabled is a time to come, in seconds")
		default:
			out = append(out, bson.E{Key: "disabled", Value: until})
		}
	}
	limits, ok := get(given, "max_tasks").(bson.D)
	if !ok {
		return nil, errors.New("max_tasks must be a name/value object")
	}
	most := bson.D{}
	for _, e := range limits {
		n, ok := limit(e.Value)
		if !ok || !balanceTime.MatchString(e.Key) {
			return nil, fmt.Errorf("max_tasks: %q: say \"DAY HH:MM\", 0 to 6 or * for the day, and a non-negative integer", e.Key)
		}
		most = append(most, bson.E{Key: e.Key, Value: int32(n)})
	}
	queues, ok := get(given, "queues").(bson.A)
	if !ok {
		return nil, errors.New("queues must be an array of arrays of names")
	}
	seen := make(map[string]bool)
	for _, level := range queues {
		names, ok := level.(bson.A)
		if !ok {
			return nil, errors.New("queues must be an array of arrays of names")
		}
		for _, v := range names {
			name, ok := v.(string)
			if !ok || !balanceName.MatchString(name) || seen[name] || !slices.Contains(known, name) {
				return nil, fmt.Errorf("queues: %q must be the name of a queue, and stand there once", scalar(v))
			}
			seen[name] = true
		}
	}
	return append(out, bson.E{Key: "max_tasks", Value: most}, bson.E{Key: "queues", Value: queues}), nil
}

// balancePage shows the settings of queue balance, and the refusal of a form, unless that is nil.
func (c *dci) balancePage(w http.ResponseWriter, r *http.Request, fault *refusal) {
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
		fault = c.unavailable("read queue balance", err)
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
	render(w, page.show(fault), "balance", page)
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
func (c *dci) formBalance(w http.ResponseWriter, r *http.Request) {
	params, err := readParams(r)
	form, _ := params.(bson.D)
	queues, limits := bson.A{}, bson.D{}
	for line := range strings.Lines(scalar(get(form, "queues"))) {
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
	for line := range strings.Lines(scalar(get(form, "max_tasks"))) {
		words := strings.Fields(line)
		if len(words) > 0 {
			last := len(words) - 1
			limits = append(limits, bson.E{Key: strings.Join(words[:last], " "), Value: words[last]})
		}
	}
	given := bson.D{{Key: "max_tasks", Value: limits}, {Key: "queues", Value: queues}}
	if minutes, ok := whole(get(form, "minutes")); ok && minutes > 0 {
		given = append(given, bson.E{Key: "disabled", Value: time.Now().Add(time.Duration(min(minutes, 7*24*60)) * time.Minute).Unix()})
	} else if perlTrue(get(form, "enable")) {
		given = append(given, bson.E{Key: "disabled", Value: nil})
	}
	fault := bad("%v", err)
	if err == nil {
		fault = c.setBalance(r.Context(), given)
	}
	if fault == nil {
		http.Redirect(w, r, "/balance", http.StatusSeeOther)
		return
	}
	c.balancePage(w, r, fault)
}
