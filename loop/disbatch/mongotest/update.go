package mongotest

import (
	"bytes"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// changed returns what an update makes of a document; inserting says that it is a new one.
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

func apply(d bson.D, operator string, e bson.RawElement, inserting bool) bson.D {
	if strings.Contains(e.Key(), ".") {
		panic(refusal{2, "the double does not update below the top: " + e.Key()})
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
			if rank(old) != 2 {
				panic(refusal{14, "cannot apply $inc to a value of non-numeric type"})
			}
			value = int64(number(old)) + e.Value().AsInt64()
		}
	default:
		panic(refusal{9, "unknown modifier: " + operator})
	}
	if at >= 0 {
		d[at].Value = value
		return d
	}
	return append(d, bson.E{Key: e.Key(), Value: value})
}

// fresh is the document that an upsert begins with: the equalities of its filter.
func fresh(filter bson.Raw) bson.Raw {
	d := bson.D{}
	for _, e := range fields(filter) {
		if _, ok := operatorsOf(e.Value()); !ok && !strings.HasPrefix(e.Key(), "$") {
			d = append(d, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return document(d)
}

// withID puts an id in front of a document that has none.
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

// updateOne changes the first match of a filter, or inserts.
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
		r := c.put(nil, withID(changed(fresh(filter), update, true)))
		return 0, 0, r.id
	}
	return matched, modified, upserted
}

// projected is a document with the fields that a projection leaves.
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
		if inner := below(wanted, e.Key()); inner != nil && e.Value().Type == bson.TypeEmbeddedDocument {
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
