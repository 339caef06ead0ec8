package web

import (
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// timeOperators are the comparison operators for times.
var timeOperators = map[string]comparison{
	"$eq": sameTypeOnly, "$gt": sameTypeOnly, "$gte": sameTypeOnly, "$lt": sameTypeOnly, "$lte": sameTypeOnly, "$in": sameTypeOnly,
	"$ne": allTypes, "$nin": allTypes, "$not": allTypes,
}

// comparison is which values a comparison operator of MongoDB can match.
type comparison bool

const (
	allTypes     comparison = false
	sameTypeOnly comparison = true // a date never matches a number
)

// timeFilter extends a filter on a time to both forms of a task's time: a date or, in old tasks, Unix seconds. Numbers
// in the filter are seconds, or milliseconds if they are too large for seconds. For example, ctime: {"$gt": 5} becomes
// {"$or": [{ctime: {"$gt": the date of second 5}}, {ctime: {"$gt": 5}}]}. timeFilter returns false if the filter has no
// time.
func timeFilter(name string, v any) (bson.E, bool) {
	dates, found, compared := convertTimes(v, func(ms int64) any { return primitive.DateTime(ms) })
	if !found {
		return bson.E{}, false
	}
	seconds, _, _ := convertTimes(v, func(ms int64) any { return float64(ms) / 1000 })
	operator := "$and" // every number satisfies "is not this date"
	if compared == sameTypeOnly {
		operator = "$or"
	}
	return bson.E{Key: operator, Value: bson.A{bson.D{{Key: name, Value: dates}}, bson.D{{Key: name, Value: seconds}}}}, true
}

// convertTimes applies f to every time in a filter's value, in milliseconds. found reports whether there is one.
// compared is sameTypeOnly if one of them is compared with values of its own type only.
func convertTimes(v any, f func(ms int64) any) (out any, found bool, compared comparison) {
	switch v := v.(type) {
	case bson.D:
		out := slices.Clone(v)
		for i, e := range v {
			operator, known := timeOperators[e.Key]
			if !known {
				continue
			}
			value, hasTime, _ := convertTimes(e.Value, f)
			out[i].Value = value
			found, compared = found || hasTime, compared || comparison(hasTime) && operator
		}
		return out, found, compared
	case bson.A:
		out := slices.Clone(v)
		for i := range v {
			value, hasTime, _ := convertTimes(v[i], f)
			out[i], found = value, found || hasTime
		}
		return out, found, comparison(found)
	case int32:
		return f(int64(v) * 1000), true, sameTypeOnly
	case int64:
		return convertTimes(float64(v), f)
	case float64:
		switch {
		case v > store.NewestSecond && v < 1<<53:
			return f(int64(v)), true, sameTypeOnly
		case v <= store.NewestSecond && v > -store.NewestSecond:
			return f(int64(math.Round(v * 1000))), true, sameTypeOnly
		}
	}
	return v, false, allTypes
}
