package mongotest

import (
	"regexp"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
)

// matches reports whether a document matches a filter.
func matches(doc, filter bson.Raw) bool {
	for _, e := range fields(filter) {
		if !matchesField(doc, e.Key(), e.Value()) {
			return false
		}
	}
	return true
}

// matchesField reports whether a document matches one element of a filter.
func matchesField(doc bson.Raw, name string, want bson.RawValue) bool {
	switch name {
	case "$and", "$or", "$nor":
		some := false
		for _, v := range list(want) {
			ok := matches(doc, v.Document())
			if name == "$and" && !ok {
				return false
			}
			some = some || ok
		}
		return name == "$and" || some == (name == "$or")
	case "$comment":
		return true
	}
	if strings.HasPrefix(name, "$") {
		panic(commandError{2, "unknown top level operator: " + name})
	}
	have := lookup(doc, name)
	if operators, ok := operatorsOf(want); ok {
		for _, o := range operators {
			if !operator(have, o.Key(), o.Value(), want.Document()) {
				return false
			}
		}
		return true
	}
	return equal(have, want)
}

// operatorsOf returns the elements of a document of operators. ok is false for other values.
func operatorsOf(v bson.RawValue) (operators []bson.RawElement, ok bool) {
	doc, ok := v.DocumentOK()
	if !ok {
		return nil, false
	}
	elements := fields(doc)
	return elements, len(elements) > 0 && strings.HasPrefix(elements[0].Key(), "$")
}

// equal reports whether a value equals another, is an array with an equal element, or matches a regular expression.
func equal(have, want bson.RawValue) bool {
	if want.Type == bson.TypeRegex {
		pattern, flags := want.Regex()
		return matchesRegexp(have, pattern, flags)
	}
	if compare(have, want) == 0 {
		return true
	}
	if have.Type == bson.TypeArray {
		for _, v := range list(have) {
			if compare(v, want) == 0 {
				return true
			}
		}
	}
	return false
}

// operator reports whether a value matches one operator of a condition.
func operator(have bson.RawValue, name string, want bson.RawValue, all bson.Raw) bool {
	switch name {
	case "$eq":
		return equal(have, want)
	case "$ne":
		return !equal(have, want)
	case "$in", "$nin":
		for _, v := range list(want) {
			if equal(have, v) {
				return name == "$in"
			}
		}
		return name == "$nin"
	case "$lt", "$lte", "$gt", "$gte":
		return typeOrder(have) == typeOrder(want) && within(compare(have, want), name)
	case "$exists":
		asked, isBool := want.BooleanOK()
		return (have.Type != 0) == (isBool && asked || !isBool && number(want) != 0)
	case "$type":
		return isType(have, want)
	case "$not":
		return !matchesField(document(bson.D{{Key: "v", Value: have}}), "v", want)
	case "$regex":
		options, _ := all.Lookup("$options").StringValueOK()
		if want.Type == bson.TypeRegex {
			pattern, flags := want.Regex()
			return matchesRegexp(have, pattern, flags+options)
		}
		return matchesRegexp(have, want.StringValue(), options)
	case "$options":
		return true
	}
	panic(commandError{2, "unknown operator: " + name})
}

// within reports whether the result of a comparison matches an operator.
func within(order int, name string) bool {
	switch name {
	case "$lt":
		return order < 0
	case "$lte":
		return order <= 0
	case "$gt":
		return order > 0
	}
	return order >= 0
}

// isType runs the operator $type.
func isType(have, want bson.RawValue) bool {
	name, _ := want.StringValueOK()
	switch name {
	case "number":
		return typeOrder(have) == 2
	case "string":
		return have.Type == bson.TypeString
	case "date":
		return have.Type == bson.TypeDateTime
	case "objectId":
		return have.Type == bson.TypeObjectID
	case "null":
		return have.Type == bson.TypeNull
	}
	panic(commandError{2, "unknown type: " + want.String()})
}

// matchesRegexp runs the operator $regex.
func matchesRegexp(have bson.RawValue, pattern, flags string) bool {
	if strings.Contains(flags, "i") {
		pattern = "(?i)" + pattern
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		panic(commandError{51091, err.Error()})
	}
	text, ok := have.StringValueOK()
	return ok && compiled.MatchString(text)
}

// list returns the elements of an array.
func list(v bson.RawValue) []bson.RawValue {
	array, ok := v.ArrayOK()
	if !ok {
		panic(commandError{2, "needs an array"})
	}
	values, err := array.Values()
	if err != nil {
		panic(commandError{2, err.Error()})
	}
	return values
}
