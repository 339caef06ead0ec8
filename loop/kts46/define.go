package kts46

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"go.yaml.in/yaml/v3"

	"treadle/loop/kts46/store"
)

const (
	// shortDefinition is how long definitions are that are read at any time, in bytes. Of the
	// longer ones, a megabyte of which takes half a second and a hundred megabytes, one is.
	shortDefinition = 4 << 10
	// maxSteps is up to where numbers are whole in JavaScript, which workers use.
	maxSteps = 1 << 53
)

// numbers is everything that the scheduler needs of a job's definition.
type numbers struct {
	duration float64 // of the simulated time
	step     float64 // of it that is one step
	batch    int64   // steps that are one task
	total    int64   // steps
}

// newNumbers checks the three numbers of a definition and counts the steps.
func newNumbers(duration, step, batch float64) (numbers, error) {
	steps := math.Ceil(duration / step)
	switch {
	case !(duration >= 0) || !(step > 0):
		return numbers{}, fmt.Errorf("simulationParameters: duration %v and stepDuration %v have to be times", duration, step)
	case !(batch >= 1 && batch <= maxSteps && batch == math.Trunc(batch)):
		return numbers{}, fmt.Errorf("simulationParameters: batchLength %v is no whole number between 1 and %d", batch, int64(maxSteps))
	case !(steps <= maxSteps):
		return numbers{}, fmt.Errorf("simulationParameters: %v steps are more than %d", steps, int64(maxSteps))
	}
	return numbers{duration: duration, step: step, batch: int64(batch), total: int64(steps)}, nil
}

// savedNumbers is the numbers of a definition as the journal has them beside the definition, so
// that a start need not parse it.
type savedNumbers struct {
	Duration float64 `json:"duration"`
	Step     float64 `json:"step"`
	Batch    float64 `json:"batch"`
	// Total is the number of steps, which a MongoDB may count in another way; nil in a
	// journal of an older version: as the others say.
	Total *int64 `json:"total,omitempty"`
	// Size and CRC tell whether the definition is the one that the numbers were taken from: an
	// older version or an edited import may have put another in its place.
	Size int    `json:"size"`
	CRC  uint32 `json:"crc"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// save returns the form of the numbers of a definition that load takes; nil if there is none:
// a step may be infinite.
func (n *numbers) save(definition []byte) []byte {
	value, err := json.Marshal(savedNumbers{n.duration, n.step, float64(n.batch), &n.total, len(definition), crc32.Checksum(definition, castagnoli)})
	if err != nil {
		return nil
	}
	return value
}

// load takes the numbers that were saved with the definition; false if they were not.
func (n *numbers) load(saved, definition []byte) bool {
	var s savedNumbers
	if saved == nil || json.Unmarshal(saved, &s) != nil || s.Size != len(definition) || s.CRC != crc32.Checksum(definition, castagnoli) {
		return false
	}
	var err error
	*n, err = newNumbers(s.Duration, s.Step, s.Batch)
	if err == nil && s.Total != nil {
		n.total = *s.Total
	}
	return err == nil && n.total >= 0 && n.total <= maxSteps
}

// parsedDefinition is the definition of a job and what it says.
type parsedDefinition struct {
	text    []byte
	numbers numbers
	stored  *store.Definition // with a MongoDB
	err     error             // of what it does not say
}

// define parses a definition. It takes no part in the book, and is no part of a turn: it may
// take long.
func (h *Hub) define(text string) *parsedDefinition {
	if len(text) > shortDefinition {
		h.defining.Lock()
		defer h.defining.Unlock()
	}
	d := &parsedDefinition{text: []byte(text)}
	d.numbers, d.err = h.parse(d.text)
	if h.site != nil && d.err == nil {
		if d.stored, d.err = store.ParseDefinition(d.text); d.err == nil {
			d.numbers.total = d.stored.Steps()
		}
	}
	return d
}

// parse parses a definition and counts that.
func (h *Hub) parse(definition []byte) (numbers, error) {
	h.stats.parsed.Add(1)
	return parseDefinition(definition)
}

// parseDefinition takes the numbers from a definition.
func parseDefinition(definition []byte) (numbers, error) {
	var root yaml.Node
	var p struct{ Duration, StepDuration, BatchLength *float64 }
	err := yaml.Unmarshal(definition, &root)
	if err == nil {
		all := member(&root, "simulationParameters")
		for name, v := range map[string]**float64{"duration": &p.Duration, "stepDuration": &p.StepDuration, "batchLength": &p.BatchLength} {
			if n := member(all, name); n != nil && n.Kind == yaml.ScalarNode && err == nil {
				err = n.Decode(v)
			}
		}
	}
	switch {
	case errors.As(err, new(*yaml.TypeError)), err == nil && (p.Duration == nil || p.StepDuration == nil || p.BatchLength == nil):
		return numbers{}, errors.New("the definition needs simulationParameters with three numbers: duration, stepDuration and batchLength")
	case err != nil:
		return numbers{}, fmt.Errorf("the definition is no YAML that can be read: %w", err)
	}
	return newNumbers(*p.Duration, *p.StepDuration, *p.BatchLength)
}

// member is the value of a name in a mapping, or in those that it merges; nil if there is
// none, or are several in one. yaml itself compares each name of a mapping with each: minutes
// for what fits into a call.
func member(n *yaml.Node, name string) *yaml.Node {
	seen := make(map[*yaml.Node]bool) // a mapping may merge one that merges others, again and again
	for left := []*yaml.Node{n}; len(left) > 0; {
		n, left = left[len(left)-1], left[:len(left)-1]
		if n != nil && n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n == nil || seen[n] {
			continue
		}
		seen[n] = true
		next := n.Content // of the document, or of a list of what is merged
		if n.Kind == yaml.MappingNode {
			value, merged, several := ownMember(n, name)
			if value != nil || several {
				return value
			}
			next = merged
		}
		for _, m := range slices.Backward(next) { // the first is the next
			left = append(left, m)
		}
	}
	return nil
}

// ownMember is the value of a name in the mapping itself, if it is there once, and what the
// mapping merges.
func ownMember(n *yaml.Node, name string) (value *yaml.Node, merged []*yaml.Node, several bool) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key := n.Content[i]; {
		case key.ShortTag() == "!!merge":
			merged = append(merged, n.Content[i+1])
		case key.Kind != yaml.ScalarNode || key.Value != name:
		case value != nil:
			return nil, nil, true
		default:
			if value = n.Content[i+1]; value.Kind == yaml.AliasNode {
				value = value.Alias
			}
		}
	}
	return value, merged, false
}
