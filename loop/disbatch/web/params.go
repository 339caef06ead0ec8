package web

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
)

// readParams returns the parameters of a request, as the original finds them: a form or
// JSON in the body, else the query. They are a bson.D, or whatever the JSON is. Others have
// none: clients name JSON as the type of a body that they do not send.
func readParams(r *http.Request) (any, error) {
	if !hasParams(r) {
		return nil, nil
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // of no known type, if it cannot be read
	if kind != "application/x-www-form-urlencoded" && kind != "application/json" {
		return parseForm(r.URL.RawQuery)
	}
	var body strings.Builder
	if _, err := io.Copy(&body, r.Body); err != nil {
		return nil, err
	}
	if kind == "application/x-www-form-urlencoded" {
		return parseForm(body.String())
	}
	if r.Method == http.MethodGet && body.Len() == 0 {
		return parseForm(r.URL.RawQuery)
	}
	v, err := parseJSON(body.String())
	if err != nil {
		return nil, fmt.Errorf("cannot read the JSON: %w", err)
	}
	return v, nil
}

// parseForm reads a form. A name that is there more than once has an array.
func parseForm(text string) (any, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read the form: %w", err)
	}
	form := bson.D{}
	for name, v := range values {
		var value any = v[0]
		if len(v) > 1 {
			several := bson.A{}
			for _, one := range v {
				several = append(several, one)
			}
			value = several
		}
		form = append(form, bson.E{Key: name, Value: value})
	}
	slices.SortFunc(form, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
	return form, nil
}

// get returns a parameter, nil if it is not there or null.
func get(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// unknown is the first parameter that is not one of these.
func unknown(d bson.D, names ...string) (string, bool) {
	for _, e := range d {
		if !slices.Contains(names, e.Key) {
			return e.Key, true
		}
	}
	return "", false
}

// structured returns a parameter that is an object or array, or the JSON text of one, as
// forms have it.
func structured(v any) (any, error) {
	text, ok := v.(string)
	if !ok {
		return v, nil
	}
	return parseJSON(text)
}

// truth is what Perl takes for true.
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != "" && v != "0"
	case int32, int64, float64:
		return scalar(v) != "0"
	}
	return true
}

// scalar is the text of a string or a number, and empty for anything else.
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int32:
		return strconv.Itoa(int(v))
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return ""
}

var digits = regexp.MustCompile(`\A[0-9]+\z`)

// limit reads a limit of a queue or node: digits, at most maxLimit.
func limit(v any) (n int, ok bool) {
	text := scalar(v)
	n, err := strconv.Atoi(text)
	return n, err == nil && digits.MatchString(text) && n <= disbatch.MaxLimit
}

// whole reads a number that is not negative.
func whole(v any) (int64, bool) {
	n, err := strconv.ParseInt(scalar(v), 10, 64)
	return n, err == nil && n >= 0
}

// errBadID says that an id is not 24 hexadecimal digits.
var errBadID = errors.New("Bad OID passed: an id is 24 hexadecimal digits") //nolint:staticcheck // the original's words

// objectID reads an id.
func objectID(v any) (primitive.ObjectID, error) {
	id, err := primitive.ObjectIDFromHex(scalar(v))
	if err != nil {
		return id, errBadID
	}
	return id, nil
}

// codeOperators are the operators whose values are programs that the database runs. No client of
// Disbatch sends them.
var codeOperators = map[string]bool{"$where": true, "$function": true, "$accumulator": true}

// withoutCode refuses a filter, or an option of a search, that has a program anywhere in it: whoever
// may search would have the database run it, for as long as it likes.
func withoutCode(v any) error {
	var inner []any
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			if codeOperators[e.Key] {
				return fmt.Errorf("%s has the database run a program and is not allowed: use operators that compare values", e.Key)
			}
			inner = append(inner, e.Value)
		}
	case bson.A:
		inner = v
	}
	for _, v := range inner {
		if err := withoutCode(v); err != nil {
			return err
		}
	}
	return nil
}

// withIDs turns every {"$oid": hex} of a filter into the id.
func withIDs(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case bson.D:
		if hex := get(v, "$oid"); hex != nil {
			return objectID(hex)
		}
		for i := range v {
			if v[i].Value, err = withIDs(v[i].Value); err != nil {
				return nil, err
			}
		}
	case bson.A:
		for i := range v {
			if v[i], err = withIDs(v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// timeOperators are those of a filter that compare with times, and whether they hold for
// values of the same type alone.
var timeOperators = map[string]bool{
	"$eq": true, "$gt": true, "$gte": true, "$lt": true, "$lte": true, "$in": true, "$ne": false, "$nin": false, "$not": false,
}

// timeFilter is a filter on a time with what it means for both forms in which tasks have
// it: a date or, in old ones, an epoch in seconds. Its numbers are seconds, or milliseconds
// where they are too large for seconds; false if it has none.
func timeFilter(name string, v any) (bson.E, bool) {
	dates, found, typed := turnTimes(v, func(ms int64) any { return primitive.DateTime(ms) })
	if !found {
		return bson.E{}, false
	}
	seconds, _, _ := turnTimes(v, func(ms int64) any { return float64(ms) / 1000 })
	both := "$and" // "is not this date" holds for every number
	if typed {
		both = "$or"
	}
	return bson.E{Key: both, Value: bson.A{bson.D{{Key: name, Value: dates}}, bson.D{{Key: name, Value: seconds}}}}, true
}

// turnTimes is a filter's value with every time in milliseconds turned by f. It says whether
// there is one, and one that only values of its type are compared with.
func turnTimes(v any, f func(ms int64) any) (out any, found, typed bool) {
	switch v := v.(type) {
	case bson.D:
		out := slices.Clone(v)
		for i, e := range v {
			how, known := timeOperators[e.Key]
			if !known {
				continue
			}
			value, has, _ := turnTimes(e.Value, f)
			out[i].Value, found, typed = value, found || has, typed || has && how
		}
		return out, found, typed
	case bson.A:
		out := slices.Clone(v)
		for i := range v {
			value, has, _ := turnTimes(v[i], f)
			out[i], found = value, found || has
		}
		return out, found, found
	case int32:
		return f(int64(v) * 1000), true, true
	case int64:
		return turnTimes(float64(v), f)
	case float64:
		switch {
		case v > disbatch.NewestSecond && v < 1<<53:
			return f(int64(v)), true, true
		case v <= disbatch.NewestSecond && v > -disbatch.NewestSecond:
			return f(int64(math.Round(v * 1000))), true, true
		}
	}
	return v, false, false
}
