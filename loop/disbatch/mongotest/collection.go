package mongotest

import (
	"fmt"
	"iter"
	"slices"

	"github.com/tidwall/btree"
	"go.mongodb.org/mongo-driver/bson"
)

// record is one stored document.
type record struct {
	id  bson.RawValue
	doc bson.Raw
}

type set = btree.BTreeG[*record]

// newSet returns an empty set of records in the order of their ids.
func newSet() *set {
	return btree.NewBTreeGOptions(func(a, b *record) bool { return compare(a.id, b.id) < 0 }, btree.Options{NoLocks: true})
}

// indexedFields are the fields with a look-up of records by value.
var indexedFields = []string{"status", "files_id"}

// index is an index of createIndexes. Only its uniqueness has an effect.
type index struct {
	name   string
	keys   bson.Raw
	unique bool
	taken  map[string]bson.RawValue // unique: id of the record, by key
}

// collection is a collection with its records in the order of their ids.
type collection struct {
	name    string
	records *set
	by      map[string]map[string]*set // by field, by value
	indexes []*index
}

// newCollection returns an empty collection.
func newCollection(name string) *collection {
	c := &collection{name: name, records: newSet(), by: make(map[string]map[string]*set)}
	for _, f := range indexedFields {
		c.by[f] = make(map[string]*set)
	}
	return c
}

// key returns the key of a document in the index.
func (x *index) key(doc bson.Raw) string {
	k := ""
	for _, e := range fields(x.keys) {
		k += key(lookup(doc, e.Key())) + "\x00"
	}
	return k
}

// put stores a document in place of old, or as a new one if old is nil. It panics with a commandError for a document
// that a unique index refuses.
func (c *collection) put(old *record, doc bson.Raw) *record {
	if len(doc) > maxDocument {
		panic(commandError{10334, fmt.Sprintf("BSONObj size: %d is invalid: over %d", len(doc), maxDocument)})
	}
	r := &record{id: doc.Lookup("_id"), doc: doc}
	if _, taken := c.records.Get(r); taken && (old == nil || compare(old.id, r.id) != 0) {
		panic(c.duplicate("_id_"))
	}
	for _, x := range c.indexes {
		if other, taken := x.taken[x.key(doc)]; x.unique && taken && (old == nil || compare(other, old.id) != 0) {
			panic(c.duplicate(x.name))
		}
	}
	if old != nil {
		c.remove(old)
	}
	c.records.Set(r)
	for _, f := range indexedFields {
		k := key(lookup(doc, f))
		if c.by[f][k] == nil {
			c.by[f][k] = newSet()
		}
		c.by[f][k].Set(r)
	}
	for _, x := range c.indexes {
		if x.unique {
			x.taken[x.key(doc)] = r.id
		}
	}
	return r
}

// duplicate returns the error of a unique index.
func (c *collection) duplicate(index string) commandError {
	return commandError{11000, fmt.Sprintf("E11000 duplicate key error collection: %s index: %s", c.name, index)}
}

// remove deletes a record.
func (c *collection) remove(r *record) {
	c.records.Delete(r)
	for _, f := range indexedFields {
		k := key(lookup(r.doc, f))
		if c.by[f][k].Delete(r); c.by[f][k].Len() == 0 {
			delete(c.by[f], k)
		}
	}
	for _, x := range c.indexes {
		if x.unique {
			delete(x.taken, x.key(r.doc))
		}
	}
}

// candidates returns the records that may match a filter. Each part is in the order of ids.
func (c *collection) candidates(filter bson.Raw) (parts []*set) {
	if ids, ok := equalValues(filter.Lookup("_id")); ok {
		part := newSet()
		for _, id := range ids {
			if r, found := c.records.Get(&record{id: id}); found {
				part.Set(r)
			}
		}
		return []*set{part}
	}
	for _, f := range indexedFields {
		values, ok := equalValues(filter.Lookup(f))
		if !ok {
			continue
		}
		for _, v := range values {
			if part := c.by[f][key(v)]; part != nil && !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
		return parts
	}
	return []*set{c.records}
}

// equalValues returns the values of a condition of equality or $in. ok is false for other conditions.
func equalValues(v bson.RawValue) (values []bson.RawValue, ok bool) {
	switch operators, ok := operatorsOf(v); {
	case v.Type == 0 || v.Type == bson.TypeRegex:
		return nil, false
	case !ok:
		return []bson.RawValue{v}, true
	case len(operators) == 1 && operators[0].Key() == "$in":
		return list(operators[0].Value()), true
	}
	return nil, false
}

// find returns the sorted records that match a filter, at most limit of them after skip. A limit of 0 means no limit.
func (c *collection) find(filter, sort bson.Raw, skip, limit int) (out []*record) {
	order := fields(sort)
	byID := len(order) == 0 || order[0].Key() == "_id"
	down := byID && len(order) > 0 && number(order[0].Value()) < 0
	parts := c.candidates(filter)
	streams := byID && len(parts) <= 1
	for _, part := range parts {
		for r := range scan(part, down) {
			if matches(r.doc, filter) {
				out = append(out, r)
				if streams && limit > 0 && len(out) == skip+limit {
					break
				}
			}
		}
	}
	if !streams {
		if len(order) == 0 {
			order = fields(document(bson.D{{Key: "_id", Value: 1}}))
		}
		slices.SortStableFunc(out, func(a, b *record) int { return compareBy(order, a.doc, b.doc) })
	}
	return cut(out, skip, limit)
}

// cut returns a part of a slice. A limit of 0 is none.
func cut[T any](all []T, skip, limit int) []T {
	all = all[min(skip, len(all)):]
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	return all
}

// scan returns the records of a set in ascending or descending order.
func scan(in *set, down bool) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		if down {
			in.Reverse(yield)
			return
		}
		in.Scan(yield)
	}
}

// compareBy compares two documents by a sort.
func compareBy(order []bson.RawElement, a, b bson.Raw) int {
	for _, o := range order {
		c := compare(lookup(a, o.Key()), lookup(b, o.Key()))
		if number(o.Value()) < 0 {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}
