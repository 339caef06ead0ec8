package disbatch

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

	"go.mongodb.org/mongo-driver/v2/bson"
)

// object is a JSON object of a reply.
type object = map[string]any

// maxDepth is how deep a value may be nested: what MongoDB takes.
const maxDepth = 100

// encode is a reply's text.
func encode(body any, pretty bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if pretty {
		e.SetIndent("", "   ")
	}
	err := e.Encode(body)
	return b.Bytes(), err
}

// oid is an id the way replies have it.
func oid(id any) any {
	if id, ok := id.(bson.ObjectID); ok {
		return object{"$oid": id.Hex()}
	}
	return id
}

// documentJSON is a document as JSON. What instead has for a field's name stands for that
// field; the rest of it follows.
func documentJSON(doc bson.Raw, instead object) json.RawMessage {
	rest := maps.Clone(instead)
	out := []byte{'{'}
	add := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, plainJSON(name)...), ':'), value...)
	}
	elements, _ := doc.Elements() // those before a damaged one
	for _, e := range elements {
		value, replaced := rest[e.Key()]
		if !replaced {
			add(e.Key(), valueJSON(e.Value()))
			continue
		}
		add(e.Key(), plainJSON(value))
		delete(rest, e.Key())
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		add(name, plainJSON(rest[name]))
	}
	return append(out, '}')
}

// valueJSON is a value as JSON: ids as {"$oid"}, times as ISO 8601, and what JSON has no
// word for as MongoDB's extended JSON.
func valueJSON(v bson.RawValue) []byte {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		inner, _ := v.DocumentOK()
		return documentJSON(inner, nil)
	case bson.TypeArray:
		array, _ := v.ArrayOK()
		values, _ := array.Values() // those before a damaged one
		out := []byte{'['}
		for i, e := range values {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, valueJSON(e)...)
		}
		return append(out, ']')
	case bson.TypeString:
		return plainJSON(text(v))
	case bson.TypeObjectID:
		return plainJSON(oid(v.ObjectID()))
	case bson.TypeBoolean:
		return strconv.AppendBool(nil, v.Boolean())
	case bson.TypeInt32:
		return strconv.AppendInt(nil, int64(v.Int32()), 10)
	case bson.TypeInt64:
		return strconv.AppendInt(nil, v.Int64(), 10)
	case bson.TypeDouble:
		if f := v.Double(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return plainJSON(f)
		}
	case bson.TypeDateTime:
		return plainJSON(v.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
	case 0, bson.TypeNull, bson.TypeUndefined:
		return []byte("null")
	}
	return plainJSON(json.RawMessage(v.String()))
}

// plainJSON is a value that JSON can say.
func plainJSON(v any) []byte {
	text, err := encode(v, false)
	if err != nil { // extended JSON of a type that the driver cannot write
		return []byte("null")
	}
	return bytes.TrimSuffix(text, []byte("\n"))
}

// epoch is a time in seconds, with its milliseconds: how a search has ctime and mtime.
func epoch(t time.Time) json.Number {
	return json.Number(strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64))
}

// parseJSON reads one JSON value as documents (bson.D), arrays (bson.A) and what can stand
// in them. The order of names stays; of a name that is there twice the last value counts.
func parseJSON(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
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
			return parseObject(d, depth)
		}
		return parseArray(d, depth)
	case json.Number:
		return parseNumber(token)
	default:
		return token, nil
	}
}

func parseObject(d *json.Decoder, depth int) (any, error) {
	out, at := bson.D{}, make(map[string]int)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := token.(string)
		value, err := parseValue(d, depth+1)
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
	_, err := d.Token()
	return out, err
}

func parseArray(d *json.Decoder, depth int) (any, error) {
	out := bson.A{}
	for d.More() {
		value, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, value)
	}
	_, err := d.Token()
	return out, err
}

// parseNumber takes the smallest type that holds the number.
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
