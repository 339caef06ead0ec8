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

func newSet() *set {
	return btree.NewBTreeGOptions(func(a, b *record) bool { return compare(a.id, b.id) < 0 }, btree.Options{NoLocks: true})
}

// hashed are the fields by whose values the records of a collection are found quickly.
var hashed = []string{"status", "files_id"}

// index is one that was asked for. Only its uniqueness has an effect.
type index struct {
	name   string
	keys   bson.Raw
	unique bool
	taken  map[string]bson.RawValue // of a unique one: the id that has a key
}

// collection holds its records by id.
type collection struct {
	name    string
	records *set
	by      map[string]map[string]*set // by field, by value
	indexes []*index
}

func newCollection(name string) *collection {
	c := &collection{name: name, records: newSet(), by: make(map[string]map[string]*set)}
	for _, f := range hashed {
		c.by[f] = make(map[string]*set)
	}
	return c
}

func (x *index) key(doc bson.Raw) string {
	k := ""
	for _, e := range fields(x.keys) {
		k += key(lookup(doc, e.Key())) + "\x00"
	}
	return k
}

// put stores a document in place of old, which may be nil; it refuses what a unique
// index does not allow.
func (c *collection) put(old *record, doc bson.Raw) *record {
	if len(doc) > maxDocument {
		panic(refusal{10334, fmt.Sprintf("BSONObj size: %d is invalid: over %d", len(doc), maxDocument)})
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
	for _, f := range hashed {
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

func (c *collection) duplicate(index string) refusal {
	return refusal{11000, fmt.Sprintf("E11000 duplicate key error collection: %s index: %s", c.name, index)}
}

func (c *collection) remove(r *record) {
	c.records.Delete(r)
	for _, f := range hashed {
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

// candidates are the records to look through for a filter. Each part is in the order of
// ids.
func (c *collection) candidates(filter bson.Raw) (parts []*set) {
	if ids, ok := wanted(filter.Lookup("_id")); ok {
		part := newSet()
		for _, id := range ids {
			if r, found := c.records.Get(&record{id: id}); found {
				part.Set(r)
			}
		}
		return []*set{part}
	}
	for _, f := range hashed {
		values, ok := wanted(filter.Lookup(f))
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

// wanted are the values that a condition asks for, if it is that simple.
func wanted(v bson.RawValue) ([]bson.RawValue, bool) {
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

// find returns matching records, sorted, at most limit of them after skip; 0 is no limit.
func (c *collection) find(filter, sort bson.Raw, skip, limit int) (out []*record) {
	order := fields(sort)
	byID := len(order) == 0 || order[0].Key() == "_id"
	down := byID && len(order) > 0 && number(order[0].Value()) < 0
	parts := c.candidates(filter)
	streams := byID && len(parts) <= 1
	for _, part := range parts {
		for r := range walk(part, down) {
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

func cut[T any](all []T, skip, limit int) []T {
	all = all[min(skip, len(all)):]
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	return all
}

func walk(in *set, down bool) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		if down {
			in.Reverse(yield)
			return
		}
		in.Scan(yield)
	}
}

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
