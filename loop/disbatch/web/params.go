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

	"treadle/loop/disbatch/store"
)

// readParams returns the parameters of a request as the original finds them: a form or JSON in the body, else the
// query. They are a bson.D or the type of the JSON value. Requests for which hasParams is false have none: clients
// name JSON as the type of an empty body.
func readParams(r *http.Request) (any, error) {
	if !hasParams(r) {
		return nil, nil
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // an invalid type counts as unknown
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

// parseForm reads a form. A repeated name has an array as its value.
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

// get returns a parameter, nil if it is missing or null.
func get(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// unknown returns the first parameter that is none of the names.
func unknown(d bson.D, names ...string) (string, bool) {
	for _, e := range d {
		if !slices.Contains(names, e.Key) {
			return e.Key, true
		}
	}
	return "", false
}

// structured returns a parameter that is an object, an array, or their JSON text as in forms.
func structured(v any) (any, error) {
	text, ok := v.(string)
	if !ok {
		return v, nil
	}
	return parseJSON(text)
}

// perlTrue reports whether a value is true in Perl.
func perlTrue(v any) bool {
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

// scalar returns the text of a string or number, and "" for any other value.
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

// limit reads a limit of a queue or node: digits up to maxLimit.
func limit(v any) (n int, ok bool) {
	text := scalar(v)
	n, err := strconv.Atoi(text)
	return n, err == nil && digits.MatchString(text) && n <= store.MaxLimit
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

// codeOperators are the operators with programs that the database runs. No client of Disbatch sends them.
var codeOperators = map[string]bool{"$where": true, "$function": true, "$accumulator": true}

// withoutCode refuses a filter or search option that contains a program. The database would run it for every user who
// may search, for any time.
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

// withIDs converts every {"$oid": hex} of a filter to the id.
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

// timeOperators are the comparison operators for times. The value says whether MongoDB compares values of the same
// type only.
var timeOperators = map[string]bool{
	"$eq": true, "$gt": true, "$gte": true, "$lt": true, "$lte": true, "$in": true, "$ne": false, "$nin": false, "$not": false,
}

// timeFilter extends a filter on a time to both forms of a task's time: a date or, in old tasks, Unix seconds.
// Numbers in it are seconds, or milliseconds if too large for seconds. It returns false if the filter has no time.
func timeFilter(name string, v any) (bson.E, bool) {
	dates, found, typed := convertTimes(v, func(ms int64) any { return primitive.DateTime(ms) })
	if !found {
		return bson.E{}, false
	}
	seconds, _, _ := convertTimes(v, func(ms int64) any { return float64(ms) / 1000 })
	both := "$and" // every number satisfies "is not this date"
	if typed {
		both = "$or"
	}
	return bson.E{Key: both, Value: bson.A{bson.D{{Key: name, Value: dates}}, bson.D{{Key: name, Value: seconds}}}}, true
}

// convertTimes applies f to every time in a filter's value, in milliseconds. found says whether there is one, typed
// whether one is compared with values of its own type only.
func convertTimes(v any, f func(ms int64) any) (out any, found, typed bool) {
	switch v := v.(type) {
	case bson.D:
		out := slices.Clone(v)
		for i, e := range v {
			how, known := timeOperators[e.Key]
			if !known {
				continue
			}
			value, has, _ := convertTimes(e.Value, f)
			out[i].Value, found, typed = value, found || has, typed || has && how
		}
		return out, found, typed
	case bson.A:
		out := slices.Clone(v)
		for i := range v {
			value, has, _ := convertTimes(v[i], f)
			out[i], found = value, found || has
		}
		return out, found, found
	case int32:
		return f(int64(v) * 1000), true, true
	case int64:
		return convertTimes(float64(v), f)
	case float64:
		switch {
		case v > store.NewestSecond && v < 1<<53:
			return f(int64(v)), true, true
		case v <= store.NewestSecond && v > -store.NewestSecond:
			return f(int64(math.Round(v * 1000))), true, true
		}
	}
	return v, false, false
}
