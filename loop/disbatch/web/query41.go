package web

import (
	"context"
	"errors"
	"regexp"
	"slices"

	"go.mongodb.org/mongo-driver/bson"
)

// query41 are the parameters of GET /tasks.
type query41 struct {
	query
	count     bool // answer with the number of tasks
	terse     bool
	allOutput bool // answer with the outputs from GridFS
	epoch     bool // answer with times in seconds, not as text
	pretty    bool
	single    bool // the limit is 1: answer with the task itself instead of an array
}

// newQuery41 reads the fields and options of GET /tasks.
func newQuery41(fields, options bson.D) (q query41, err error) {
	if err := refuseCode(bson.A{fields, options}); err != nil {
		return q, err
	}
	filter := bson.D{}
	for _, e := range fields {
		if e.Value == "" {
			continue
		}
		isID := e.Key == "id" || e.Key == "queue"
		if e.Key == "id" {
			e.Key = "_id"
		}
		if e.Value, err = fieldValue(e.Value, isID); err != nil {
			return q, err
		}
		filter = append(filter, e)
	}
	if q.filter, err = convertFilter(filter); err != nil {
		return q, err
	}
	isTrue := func(name string) bool { return perlTrue(get(options, name)) }
	q.count, q.terse, q.epoch, q.pretty = isTrue(".count"), isTrue(".terse"), isTrue(".epoch"), isTrue(".pretty")
	if err := range41.read(options, &q.options); err != nil {
		return q, err
	}
	q.single, q.omitOutput = q.options.Limit == 1, q.terse
	q.allOutput = isTrue(".full") && !q.terse
	q.options.Projection, err = projectionOf(params{fields: options})
	return q, err
}

// numeric matches text that the original treats as a number.
var numeric = regexp.MustCompile(`\A-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?\z`)

// fieldValue converts a field's value: forms and addresses have text for numbers and ids.
func fieldValue(v any, isID bool) (any, error) {
	switch v := v.(type) {
	case bson.A:
		values := make(bson.A, len(v))
		for i := range v {
			var err error
			if values[i], err = fieldValue(v[i], isID); err != nil {
				return nil, err
			}
		}
		return bson.D{{Key: "$in", Value: values}}, nil
	case string:
		switch {
		case isID:
			return objectID(v)
		case numeric.MatchString(v):
			return parseJSON(v)
		}
	}
	return v, nil
}

// projectionOf reads the option .fields: an array of names, an object, or the JSON text of either.
func projectionOf(options params) (bson.D, error) {
	if !perlTrue(get(options.fields, ".fields")) {
		return nil, nil
	}
	wanted, err := options.json(".fields")
	switch wanted := wanted.(type) {
	case bson.D:
		return wanted, err
	case bson.A:
		var out bson.D
		for _, name := range wanted {
			out = append(out, bson.E{Key: scalar(name), Value: int32(1)})
		}
		return out, err
	}
	return nil, errors.New(".fields must be an array of names, or an object")
}

// taskIndexes returns the fields of each index of tasks, without prefixes of other indexes. If the user may not list
// the indexes, it returns those of every site.
func (c *commandInterface) taskIndexes(ctx context.Context) [][]string {
	indexes := [][]string{{"id"}, {"node", "status", "queue", "id"}, {"queue", "status"}}
	stored, err := c.store.TaskIndexes(ctx)
	if err != nil {
		return indexes
	}
	for _, fields := range stored {
		if i := slices.Index(fields, "_id"); i >= 0 {
			fields[i] = "id"
		}
		indexes = append(indexes, fields)
	}
	slices.SortFunc(indexes, slices.Compare)
	indexes = slices.CompactFunc(indexes, slices.Equal)
	var out [][]string
	for _, fields := range indexes {
		isPrefix := func(other []string) bool {
			return len(other) > len(fields) && slices.Equal(other[:len(fields)], fields)
		}
		if len(fields) > 0 && !slices.ContainsFunc(indexes, isPrefix) {
			out = append(out, fields)
		}
	}
	return out
}

// notIndexed returns the fields that no index covers: an index covers a field if all fields before it are given too.
func notIndexed(fields bson.D, indexes [][]string) (out []string) {
	given := func(name string) bool {
		return slices.ContainsFunc(fields, func(e bson.E) bool { return e.Key == name })
	}
	for _, e := range fields {
		covers := func(index []string) bool {
			at := slices.Index(index, e.Key)
			return at >= 0 && !slices.ContainsFunc(index[:at], func(before string) bool { return !given(before) })
		}
		if !slices.ContainsFunc(indexes, covers) {
			out = append(out, e.Key)
		}
	}
	return out
}
