package mongotest

import (
	"bytes"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// changed returns a document after an update. inserting: an upsert creates the document.
func changed(doc, update bson.Raw, inserting bool) bson.Raw {
	all := fields(update)
	if len(all) == 0 || !strings.HasPrefix(all[0].Key(), "$") {
		replaced := bson.D{}
		if id := doc.Lookup("_id"); id.Type != 0 {
			replaced = append(replaced, bson.E{Key: "_id", Value: id})
		}
		for _, e := range all {
			if e.Key() != "_id" || len(replaced) == 0 {
				replaced = append(replaced, bson.E{Key: e.Key(), Value: e.Value()})
			}
		}
		return document(replaced)
	}
	var d bson.D
	for _, e := range fields(doc) {
		d = append(d, bson.E{Key: e.Key(), Value: e.Value()})
	}
	for _, o := range all {
		for _, e := range fields(o.Value().Document()) {
			d = apply(d, o.Key(), e, inserting)
		}
	}
	return document(d)
}

// apply applies one field of an update operator.
func apply(d bson.D, operator string, e bson.RawElement, inserting bool) bson.D {
	if strings.Contains(e.Key(), ".") {
		panic(commandError{2, "the fake does not update below the top: " + e.Key()})
	}
	at := -1
	for i := range d {
		if d[i].Key == e.Key() {
			at = i
		}
	}
	value := any(e.Value())
	switch operator {
	case "$set":
	case "$setOnInsert":
		if !inserting {
			return d
		}
	case "$unset":
		if at >= 0 {
			d = append(d[:at:at], d[at+1:]...)
		}
		return d
	case "$inc":
		value = e.Value().AsInt64()
		if at >= 0 {
			old := raw(d[at].Value)
			if typeOrder(old) != 2 {
				panic(commandError{14, "cannot apply $inc to a value of non-numeric type"})
			}
			value = int64(number(old)) + e.Value().AsInt64()
		}
	default:
		panic(commandError{9, "unknown modifier: " + operator})
	}
	if at >= 0 {
		d[at].Value = value
		return d
	}
	return append(d, bson.E{Key: e.Key(), Value: value})
}

// upsertBase returns the document to which an upsert applies its update: the equalities of its filter.
func upsertBase(filter bson.Raw) bson.Raw {
	d := bson.D{}
	for _, e := range fields(filter) {
		if _, ok := operatorsOf(e.Value()); !ok && !strings.HasPrefix(e.Key(), "$") {
			d = append(d, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return document(d)
}

// withID moves the id of a document to its front, and adds one if it has none.
func withID(doc bson.Raw) bson.Raw {
	id := doc.Lookup("_id")
	if id.Type == 0 {
		id = raw(primitive.NewObjectID())
	}
	d := bson.D{{Key: "_id", Value: id}}
	for _, e := range fields(doc) {
		if e.Key() != "_id" {
			d = append(d, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return document(d)
}

// update changes the first record that matches a filter, or all with multi. With upsert it inserts a document if none
// matches.
func (c *collection) update(filter, update bson.Raw, multi, upsert bool) (matched, modified int, upserted bson.RawValue) {
	limit := 1
	if multi {
		limit = 0
	}
	found := c.find(filter, document(nil), 0, limit)
	for _, r := range found {
		doc := changed(r.doc, update, false)
		matched++
		if !bytes.Equal(doc, r.doc) {
			c.put(r, doc)
			modified++
		}
	}
	if len(found) == 0 && upsert {
		r := c.put(nil, withID(changed(upsertBase(filter), update, true)))
		return 0, 0, r.id
	}
	return matched, modified, upserted
}

// projected returns a document with the fields of a projection.
func projected(doc, projection bson.Raw) bson.Raw {
	wanted := fields(projection)
	if len(wanted) == 0 {
		return doc
	}
	including, names := false, make(map[string]bool)
	for _, e := range wanted {
		on, isBool := e.Value().BooleanOK()
		names[e.Key()] = isBool && on || !isBool && number(e.Value()) != 0
		including = including || names[e.Key()] && e.Key() != "_id"
	}
	d := bson.D{}
	for _, e := range fields(doc) {
		if inner := subProjection(wanted, e.Key()); inner != nil && e.Value().Type == bson.TypeEmbeddedDocument {
			d = append(d, bson.E{Key: e.Key(), Value: projected(e.Value().Document(), document(inner))})
			continue
		}
		on, named := names[e.Key()]
		if named && on || !named && (!including || e.Key() == "_id") {
			d = append(d, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return document(d)
}

// subProjection returns the projection of a field's embedded document.
func subProjection(wanted []bson.RawElement, field string) (inner bson.D) {
	for _, e := range wanted {
		if rest, ok := strings.CutPrefix(e.Key(), field+"."); ok {
			inner = append(inner, bson.E{Key: rest, Value: e.Value()})
		}
	}
	return inner
}
