package store

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.yaml.in/yaml/v3"
)

// Limits of a definition. The length of its text does not limit it, because aliases can repeat any part of it.
const (
	// maxDefinition is the longest document in bytes. MongoDB allows 16 MiB; the rest is for the names around it.
	maxDefinition = 15 << 20
	// maxDepth is the deepest nesting that MongoDB allows, less the two levels around a definition.
	maxDepth = 98
)

// Definition is a job's definition in the form of its document.
type Definition struct {
	document       bson.D
	steps, batches float64
}

// Steps returns the job's number of steps.
func (d *Definition) Steps() int64 { return int64(d.steps) }

// ParseDefinition converts a definition from YAML. The caller has checked its duration, step and batch length.
func ParseDefinition(text []byte) (*Definition, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("the definition is no YAML that can be read: %w", err)
	}
	if len(root.Content) != 1 {
		return nil, errors.New("the definition is empty")
	}
	b := builder{room: maxDefinition}
	v, err := b.value(root.Content[0], 0)
	if err != nil {
		return nil, fmt.Errorf("the definition cannot be stored in MongoDB: %w", err)
	}
	doc, ok := v.(bson.D)
	if !ok {
		return nil, errors.New("the definition is no mapping")
	}
	d := &Definition{document: doc}
	duration, step, batch, err := parameters(doc)
	if err != nil {
		return nil, err
	}
	steps := divide(duration, step)
	d.steps, d.batches = math.Ceil(toFloat(steps)), math.Ceil(toFloat(divide(steps, batch)))
	return d, nil
}

func get(doc bson.D, name string) any {
	for _, e := range doc {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// parameters are the numbers of a simulation in YAML's types, int64 or float64.
func parameters(doc bson.D) (duration, step, batch any, err error) {
	in, _ := get(doc, "simulationParameters").(bson.D)
	for name, into := range map[string]*any{"duration": &duration, "stepDuration": &step, "batchLength": &batch} {
		switch v := get(in, name).(type) {
		case int32:
			*into = int64(v)
		case int64, float64:
			*into = v
		default:
			return nil, nil, nil, fmt.Errorf("the definition has no number %s in its simulationParameters", name)
		}
	}
	return duration, step, batch, nil
}

// divide divides as Python 2 does, in which the original counts steps: whole numbers have a whole quotient.
func divide(a, b any) any {
	x, whole := a.(int64)
	if y, also := b.(int64); whole && also && y != 0 {
		return int64(math.Floor(float64(x) / float64(y)))
	}
	return toFloat(a) / toFloat(b)
}

func toFloat(v any) float64 {
	if n, ok := v.(int64); ok {
		return float64(n)
	}
	f, _ := v.(float64)
	return f
}

// builder converts YAML values to BSON.
type builder struct {
	room int // bytes left for the document
}

var errLong = fmt.Errorf("its document has more than %d bytes", maxDefinition)

func (b *builder) take(bytes int) error {
	if b.room -= bytes; b.room < 0 {
		return errLong
	}
	return nil
}

// elementSize is the size of a value in a document without its name and text: its type, the end of the name, and a
// length or a number.
const elementSize = 8

// value converts a node of YAML to a value of MongoDB. It bounds the depth and, by take, the size of the whole
// definition.
func (b *builder) value(n *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("line %d: it nests deeper than %d", n.Line, maxDepth)
	}
	if err := b.take(elementSize); err != nil {
		return nil, err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return b.value(n.Alias, depth+1) // an alias of itself ends at maxDepth
	case yaml.MappingNode:
		return b.mapping(n, depth)
	case yaml.SequenceNode:
		all := bson.A{}
		for _, e := range n.Content {
			v, err := b.value(e, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
	return b.scalar(n)
}

// mapping converts a mapping. The fields of merged mappings follow its own.
func (b *builder) mapping(n *yaml.Node, depth int) (bson.D, error) {
	doc, known := bson.D{}, make(map[string]bool)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		name, err := fieldName(key)
		if err != nil {
			return nil, err
		}
		if known[name] {
			return nil, fmt.Errorf("line %d: the key %.40q is there twice", key.Line, name)
		}
		known[name] = true
		if err := b.take(len(name)); err != nil {
			return nil, err
		}
		v, err := b.value(value, depth+1)
		if err != nil {
			return nil, err
		}
		doc = append(doc, bson.E{Key: name, Value: v})
	}
	for _, m := range merged {
		v, err := b.value(m, depth+1)
		if err != nil {
			return nil, err
		}
		list, ok := v.(bson.A)
		if !ok {
			list = bson.A{v}
		}
		for _, v := range list {
			in, ok := v.(bson.D)
			if !ok {
				return nil, fmt.Errorf("line %d: what is merged is no mapping", m.Line)
			}
			for _, e := range in {
				if !known[e.Key] {
					known[e.Key] = true
					doc = append(doc, e)
				}
			}
		}
	}
	return doc, nil
}

// fieldName returns the name of a field. The original refuses the same names.
func fieldName(key *yaml.Node) (string, error) {
	if key.Kind == yaml.AliasNode {
		key = key.Alias
	}
	switch name := key.Value; {
	case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
		return "", fmt.Errorf("line %d: the key %.40q is no text: put it in quotes", key.Line, name)
	case strings.HasPrefix(name, "$"), strings.ContainsAny(name, ".\x00"):
		return "", fmt.Errorf("line %d: the key %.40q begins with $ or has a dot", key.Line, name)
	default:
		return name, nil
	}
}

// scalar converts a scalar of YAML to a value of MongoDB. It returns an error for a value that JSON cannot represent.
func (b *builder) scalar(n *yaml.Node) (any, error) {
	if err := b.take(len(n.Value)); err != nil {
		return nil, err
	}
	if n.ShortTag() == "!!binary" {
		return nil, fmt.Errorf("line %d: bytes have no place in a definition", n.Line)
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, bool, float64, string:
		return v, nil
	case int:
		if v >= math.MinInt32 && v <= math.MaxInt32 {
			return int32(v), nil
		}
		return int64(v), nil
	case int64:
		return v, nil
	case time.Time:
		return primitive.NewDateTimeFromTime(v), nil
	}
	return nil, fmt.Errorf("line %d: %.40q is no text, number, truth value or time", n.Line, n.Value)
}
