package mongotest

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
)

// lookup returns the value of a dotted path. It does not search arrays.
func lookup(doc bson.Raw, path string) bson.RawValue {
	if !strings.Contains(path, ".") {
		return doc.Lookup(path)
	}
	return doc.Lookup(strings.Split(path, ".")...)
}

// typeOrder returns the position of a value's type in MongoDB's sort order. Conditions never match values of another
// position.
func typeOrder(v bson.RawValue) int {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return 1
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		return 2
	case bson.TypeString, bson.TypeSymbol:
		return 3
	case bson.TypeEmbeddedDocument:
		return 4
	case bson.TypeArray:
		return 5
	case bson.TypeBinary:
		return 6
	case bson.TypeObjectID:
		return 7
	case bson.TypeBoolean:
		return 8
	case bson.TypeDateTime:
		return 9
	}
	return 10 + int(v.Type)
}

// number returns the value of a number, or 0.
func number(v bson.RawValue) float64 {
	switch v.Type {
	case bson.TypeInt32:
		return float64(v.Int32())
	case bson.TypeInt64:
		return float64(v.Int64())
	case bson.TypeDouble:
		return v.Double()
	}
	return 0
}

// compare compares two values in MongoDB's sort order.
func compare(a, b bson.RawValue) int {
	if c := cmp.Compare(typeOrder(a), typeOrder(b)); c != 0 {
		return c
	}
	switch typeOrder(a) {
	case 1:
		return 0
	case 2:
		return cmp.Compare(number(a), number(b))
	case 3:
		return cmp.Compare(a.StringValue(), b.StringValue())
	case 9:
		return cmp.Compare(a.DateTime(), b.DateTime())
	}
	return bytes.Compare(a.Value, b.Value)
}

// key returns a map key that is the same for equal values.
func key(v bson.RawValue) string {
	switch typeOrder(v) {
	case 1:
		return "null"
	case 2:
		return strconv.FormatFloat(number(v), 'g', -1, 64)
	}
	return string(v.Type) + string(v.Value)
}

// raw encodes a value.
func raw(v any) bson.RawValue {
	if r, ok := v.(bson.RawValue); ok {
		return r
	}
	t, data, err := bson.MarshalValue(v)
	if err != nil {
		panic("BUG: no value: " + err.Error())
	}
	return bson.RawValue{Type: t, Value: data}
}

// document encodes a document; nil is an empty one.
func document(v any) bson.Raw {
	if r, ok := v.(bson.Raw); ok {
		return r
	}
	if v == nil {
		v = bson.D{}
	}
	data, err := bson.Marshal(v)
	if err != nil {
		panic(commandError{9, "not a document: " + err.Error()})
	}
	return data
}

// fields returns the elements of a document.
func fields(doc bson.Raw) []bson.RawElement {
	elements, err := doc.Elements()
	if err != nil {
		panic(commandError{9, err.Error()})
	}
	return elements
}
