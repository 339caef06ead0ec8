package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// object is a JSON object in a reply.
type object = map[string]any

const (
	// maxDepth is the deepest nesting of a value: MongoDB's limit.
	maxDepth = 100
	// maxValues bounds the values within one JSON value. Each takes several times its text in memory. A hundred
	// thousand tasks with ten parameters each have fewer.
	maxValues = 2 << 20
	// maxPretty is the longest text that is indented for people: indenting makes a deeply nested value over a hundred
	// times longer.
	maxPretty = 256 << 10
)

// encode returns a reply's text.
func encode(body any, pretty bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil || !pretty || b.Len() > maxPretty {
		return b.Bytes(), err
	}
	var lines bytes.Buffer
	err := json.Indent(&lines, b.Bytes(), "", "   ")
	return lines.Bytes(), err
}

// oid returns an id in the form of replies.
func oid(id primitive.ObjectID) object { return object{"$oid": id.Hex()} }

// documentJSON returns a document as JSON. The values of replace are those of fields with the same name. Its other
// entries follow.
func documentJSON(doc bson.Raw, replace object) json.RawMessage {
	return appendDocument(nil, doc, maps.Clone(replace))
}

// appendDocument appends a document as documentJSON writes it. It removes the used entries of replace.
func appendDocument(out []byte, doc bson.Raw, replace object) []byte {
	out = append(out, '{')
	first := len(out)
	name := func(name string) {
		if len(out) > first {
			out = append(out, ',')
		}
		out = append(append(out, plainJSON(name)...), ':')
	}
	elements, _ := doc.Elements() // elements before damage
	for _, e := range elements {
		name(e.Key())
		value, replaced := replace[e.Key()]
		if !replaced {
			out = appendValue(out, e.Value())
			continue
		}
		out = append(out, plainJSON(value)...)
		delete(replace, e.Key())
	}
	for _, rest := range slices.Sorted(maps.Keys(replace)) {
		name(rest)
		out = append(out, plainJSON(replace[rest])...)
	}
	return append(out, '}')
}

// valueJSON returns a value as JSON: ids as {"$oid"}, times as ISO 8601, and types without a JSON form as MongoDB's
// extended JSON.
func valueJSON(v bson.RawValue) []byte { return appendValue(nil, v) }

// appendValue appends a value as valueJSON writes it.
func appendValue(out []byte, v bson.RawValue) []byte {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		inner, _ := v.DocumentOK()
		return appendDocument(out, inner, nil)
	case bson.TypeArray:
		array, _ := v.ArrayOK()
		values, _ := array.Values() // elements before damage
		out = append(out, '[')
		for i, e := range values {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendValue(out, e)
		}
		return append(out, ']')
	case bson.TypeBoolean:
		return strconv.AppendBool(out, v.Boolean())
	case bson.TypeInt32:
		return strconv.AppendInt(out, int64(v.Int32()), 10)
	case bson.TypeInt64:
		return strconv.AppendInt(out, v.Int64(), 10)
	}
	return append(out, plainJSON(plain(v))...)
}

// plain converts a value without nested values.
func plain(v bson.RawValue) any {
	switch v.Type {
	case bson.TypeString:
		return store.Text(v)
	case bson.TypeObjectID:
		return oid(v.ObjectID())
	case bson.TypeDouble:
		if f := v.Double(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	case bson.TypeDateTime:
		return v.Time().UTC().Format("2006-01-02T15:04:05.000Z")
	case 0, bson.TypeNull, bson.TypeUndefined:
		return nil
	}
	return json.RawMessage(v.String())
}

// plainJSON encodes a value that JSON can represent.
func plainJSON(v any) []byte {
	text, err := encode(v, false)
	if err != nil { // extended JSON of a type that the driver cannot write
		return []byte("null")
	}
	return bytes.TrimSuffix(text, []byte("\n"))
}

// appendParam encodes a parameter from parseJSON.
func appendParam(out []byte, v any) []byte {
	switch v := v.(type) {
	case bson.D:
		out = append(out, '{')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendParam(append(append(out, plainJSON(e.Key)...), ':'), e.Value)
		}
		return append(out, '}')
	case bson.A:
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendParam(out, e)
		}
		return append(out, ']')
	}
	return append(out, plainJSON(v)...)
}

// epoch returns a time in seconds with milliseconds, the form of ctime and mtime in a search.
func epoch(t time.Time) any {
	return json.Number(strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64))
}

// parseJSON parses one JSON value to documents (bson.D), arrays (bson.A) and their values. Names keep their order. The
// last value of a repeated name counts.
func parseJSON(text string) (any, error) {
	p := jsonParser{json.NewDecoder(strings.NewReader(text)), maxValues}
	p.UseNumber()
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

type jsonParser struct {
	*json.Decoder
	left int // values that may follow
}

// value parses the next value at a depth of nesting. It returns an error for a value nested deeper than maxDepth, and
// for more than maxValues values.
func (p *jsonParser) value(depth int) (any, error) {
	if p.left--; p.left < 0 {
		return nil, fmt.Errorf("more than %d values: create the tasks in several requests", maxValues)
	}
	token, err := p.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("nested deeper than %d", maxDepth)
		}
		if token == '{' {
			return p.object(depth)
		}
		return p.array(depth)
	case json.Number:
		return parseNumber(token)
	default:
		return token, nil
	}
}

// object parses the rest of an object.
func (p *jsonParser) object(depth int) (any, error) {
	out, at := bson.D{}, make(map[string]int)
	for p.More() {
		token, err := p.Token()
		if err != nil {
			return nil, err
		}
		name := token.(string)
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if i, again := at[name]; again {
			out[i].Value = value
			continue
		}
		at[name] = len(out)
		out = append(out, bson.E{Key: name, Value: value})
	}
	_, err := p.Token()
	return out, err
}

// array parses the rest of an array.
func (p *jsonParser) array(depth int) (any, error) {
	out := bson.A{}
	for p.More() {
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, value)
	}
	_, err := p.Token()
	return out, err
}

// parseNumber returns the smallest type that holds the number.
func parseNumber(n json.Number) (any, error) {
	i, err := n.Int64()
	switch {
	case err == nil && i >= math.MinInt32 && i <= math.MaxInt32:
		return int32(i), nil
	case err == nil:
		return i, nil
	}
	return n.Float64()
}
