package mongotest

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
)

// aggregate runs the stages of a pipeline on the documents of a collection.
func (c *collection) aggregate(pipeline []bson.RawValue) (docs []bson.Raw) {
	filter := document(nil)
	if len(pipeline) > 0 {
		if first, ok := pipeline[0].Document().Lookup("$match").DocumentOK(); ok {
			filter, pipeline = first, pipeline[1:]
		}
	}
	for _, r := range c.find(filter, document(nil), 0, 0) {
		docs = append(docs, r.doc)
	}
	for _, stage := range pipeline {
		docs = runStage(docs, fields(stage.Document())[0])
	}
	return docs
}

// runStage runs one stage of a pipeline.
func runStage(docs []bson.Raw, stage bson.RawElement) []bson.Raw {
	v := stage.Value()
	switch stage.Key() {
	case "$match":
		return slices.DeleteFunc(docs, func(d bson.Raw) bool { return !matches(d, v.Document()) })
	case "$sort":
		order := fields(v.Document())
		slices.SortStableFunc(docs, func(a, b bson.Raw) int { return compareBy(order, a, b) })
		return docs
	case "$limit":
		return cut(docs, 0, int(number(v)))
	case "$skip":
		return cut(docs, int(number(v)), 0)
	case "$project":
		for i := range docs {
			docs[i] = projected(docs[i], v.Document())
		}
		return docs
	case "$count":
		if len(docs) == 0 {
			return nil
		}
		return []bson.Raw{document(bson.D{{Key: v.StringValue(), Value: int32(len(docs))}})}
	case "$group":
		return group(docs, v.Document())
	}
	panic(commandError{40324, "Unrecognized pipeline stage name: " + stage.Key()})
}

// group runs a stage $group with sums.
func group(docs []bson.Raw, by bson.Raw) (out []bson.Raw) {
	type bucket struct {
		id   bson.RawValue
		sums []float64
	}
	sums := fields(by)[1:]
	if fields(by)[0].Key() != "_id" {
		panic(commandError{15955, "a group specification must begin with an _id here"})
	}
	buckets := make(map[string]*bucket)
	var order []*bucket
	for _, d := range docs {
		id := evaluate(d, by.Lookup("_id"))
		b := buckets[key(id)]
		if b == nil {
			b = &bucket{id: id, sums: make([]float64, len(sums))}
			buckets[key(id)] = b
			order = append(order, b)
		}
		for i, e := range sums {
			amount := e.Value().Document().Lookup("$sum")
			if amount.Type == 0 {
				panic(commandError{15952, "unknown group operator in " + e.String()})
			}
			b.sums[i] += number(evaluate(d, amount))
		}
	}
	for _, b := range order {
		d := bson.D{{Key: "_id", Value: b.id}}
		for i, e := range sums {
			d = append(d, bson.E{Key: e.Key(), Value: int32(b.sums[i])})
		}
		out = append(out, document(d))
	}
	return out
}

// evaluate returns the value of an expression: a field, a document of expressions, or a constant.
func evaluate(doc bson.Raw, e bson.RawValue) bson.RawValue {
	if text, ok := e.StringValueOK(); ok && strings.HasPrefix(text, "$") {
		v := lookup(doc, text[1:])
		if v.Type == 0 {
			return bson.RawValue{Type: bson.TypeNull}
		}
		return v
	}
	inner, ok := e.DocumentOK()
	if !ok {
		return e
	}
	d := bson.D{}
	for _, f := range fields(inner) {
		d = append(d, bson.E{Key: f.Key(), Value: evaluate(doc, f.Value())})
	}
	return raw(d)
}
