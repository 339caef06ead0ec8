package web

import (
	"cmp"
	"errors"
	"fmt"
	"io"
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

// params are the parameters of a request as the original finds them: a form or JSON in the body, else the query.
type params struct {
	value  any    // of any JSON type; nil without parameters
	fields bson.D // the value if it is an object
}

// readParams reads the parameters of a request. Requests for which hasParams is false have none: clients name JSON as
// the type of an empty body.
func readParams(r *http.Request) (params, error) {
	value, err := readValue(r)
	fields, _ := value.(bson.D)
	return params{value, fields}, err
}

// readValue returns the JSON value or the form that contains the parameters of a request.
func readValue(r *http.Request) (any, error) {
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

// hasParams reports whether a request has parameters: a POST, or a search of 4.1, whose clients send a body with GET.
func hasParams(r *http.Request) bool {
	return r.Method == http.MethodPost || r.Method == http.MethodGet && r.URL.Path == "/tasks"
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
			texts := bson.A{}
			for _, text := range v {
				texts = append(texts, text)
			}
			value = texts
		}
		form = append(form, bson.E{Key: name, Value: value})
	}
	slices.SortFunc(form, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
	return form, nil
}

// get returns a field, nil if it is missing or null.
func get(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// text returns a parameter that is a string or a number as text, and "" for any other value.
func (p params) text(name string) string { return scalar(get(p.fields, name)) }

// json returns a parameter that is JSON or, in a form, the text of JSON.
func (p params) json(name string) (any, error) {
	v := get(p.fields, name)
	if text, ok := v.(string); ok {
		return parseJSON(text)
	}
	return v, nil
}

// object returns a parameter that is a JSON object or its text. ok is false for any other value. A missing or null
// object is nil, and ok is false too.
func (p params) object(name string) (object bson.D, ok bool) {
	v, err := p.json(name)
	object, ok = v.(bson.D)
	return object, ok && err == nil
}

// optionalObject is object with ok for a missing parameter, for null and for the text of null.
func (p params) optionalObject(name string) (object bson.D, ok bool) {
	v, err := p.json(name)
	object, ok = v.(bson.D)
	return object, err == nil && (ok || v == nil)
}

// unknown returns the first parameter that is not among the names.
func unknown(d bson.D, names ...string) (string, bool) {
	for _, e := range d {
		if !slices.Contains(names, e.Key) {
			return e.Key, true
		}
	}
	return "", false
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

// threadLimit reads a limit of a queue or node: digits up to store.MaxLimit.
func threadLimit(v any) (n int, ok bool) {
	text := scalar(v)
	n, err := strconv.Atoi(text)
	return n, err == nil && digits.MatchString(text) && n <= store.MaxLimit
}

// nonNegative reads an integer that is not negative.
func nonNegative(v any) (int64, bool) {
	n, err := strconv.ParseInt(scalar(v), 10, 64)
	return n, err == nil && n >= 0
}

// errBadID reports that an id is not 24 hexadecimal digits.
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

// refuseCode returns an error for a filter or search option that contains a program. The database would run the program
// for every user who may search, for any time.
func refuseCode(v any) error {
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
		if err := refuseCode(v); err != nil {
			return err
		}
	}
	return nil
}

// convertIDs returns a filter with the id in place of every {"$oid": hex}. It changes the documents and arrays within
// v.
func convertIDs(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case bson.D:
		if hex := get(v, "$oid"); hex != nil {
			return objectID(hex)
		}
		for i := range v {
			if v[i].Value, err = convertIDs(v[i].Value); err != nil {
				return nil, err
			}
		}
	case bson.A:
		for i := range v {
			if v[i], err = convertIDs(v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// pageRange is how a version of the interface reads the part of a result that a search asks for.
type pageRange struct {
	limit, skip string           // the names of the parameters
	most        int64            // the largest limit
	missing     func(v any) bool // reports whether a value stands for a missing parameter
	invalid     string           // the error about a value that is not a number
	tooMany     string           // the error about a limit over most
}

// set sets the limit or the skip of a search to the value of the parameter called name. A missing parameter, or a limit
// of 0, leaves the default.
func (p *pageRange) set(o *store.SearchOptions, name string, v any) error {
	if p.missing(v) {
		return nil
	}
	n, ok := nonNegative(v)
	switch {
	case !ok:
		return fmt.Errorf(p.invalid, name)
	case name == p.skip:
		o.Skip = n
	case n > p.most:
		return fmt.Errorf(p.tooMany, name)
	case n > 0:
		o.Limit = n
	}
	return nil
}

// read sets the limit and the skip of a search from its parameters.
func (p *pageRange) read(given bson.D, o *store.SearchOptions) error {
	return cmp.Or(p.set(o, p.limit, get(given, p.limit)), p.set(o, p.skip, get(given, p.skip)))
}

// The ranges of 4.0, of 4.1 and before version 4. The last two read a value that is false in Perl as a missing one.
var (
	range40 = pageRange{
		limit: "limit", skip: "skip", most: searchLimit, missing: func(v any) bool { return v == nil },
		invalid: "%s must be a non-negative integer", tooMany: fmt.Sprintf("%%s cannot exceed %d", searchLimit),
	}
	range41     = perlRange(".limit", ".skip", "%%s must be a non-negative integer, .limit at most %d")
	legacyRange = perlRange("limit", "skip", "%%s must be a non-negative integer, a limit at most %d")
)

// perlRange returns a range with the largest legacy limit. invalid is the format of its error, which has that limit.
func perlRange(limit, skip, invalid string) pageRange {
	invalid = fmt.Sprintf(invalid, legacySearchLimit)
	return pageRange{
		limit: limit, skip: skip, most: legacySearchLimit, missing: func(v any) bool { return !perlTrue(v) }, invalid: invalid, tooMany: invalid,
	}
}
