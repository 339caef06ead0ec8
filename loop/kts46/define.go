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
	// shortDefinition is the size in bytes up to which definitions are parsed concurrently. A megabyte of YAML takes
	// half a second and a hundred megabytes of memory, so longer definitions are parsed one at a time.
	shortDefinition = 4 << 10
	// maxSteps is the largest exact integer in JavaScript, which workers use.
	maxSteps = 1 << 53
)

// batchParams are the parts of a job's definition that the scheduler needs.
type batchParams struct {
	duration float64 // simulated time
	step     float64 // simulated time of one step
	batch    int64   // steps of one task
	total    int64   // steps
}

// newBatchParams validates the three numbers of a definition and counts the steps.
func newBatchParams(duration, step, batch float64) (batchParams, error) {
	steps := math.Ceil(duration / step)
	switch {
	case !(duration >= 0) || !(step > 0):
		return batchParams{}, fmt.Errorf("simulationParameters: duration %v and stepDuration %v have to be times", duration, step)
	case !(batch >= 1 && batch <= maxSteps && batch == math.Trunc(batch)):
		return batchParams{}, fmt.Errorf("simulationParameters: batchLength %v is no whole number between 1 and %d", batch, int64(maxSteps))
	case !(steps <= maxSteps):
		return batchParams{}, fmt.Errorf("simulationParameters: %v steps are more than %d", steps, int64(maxSteps))
	}
	return batchParams{duration: duration, step: step, batch: int64(batch), total: int64(steps)}, nil
}

// savedBatchParams are the numbers of a definition in the journal's form. They spare a start the parsing of the
// definition.
type savedBatchParams struct {
	Duration float64 `json:"duration"`
	Step     float64 `json:"step"`
	Batch    float64 `json:"batch"`
	// Total is the number of steps. A MongoDB may count them differently. nil, from an older version: the count follows
	// from the other numbers.
	Total *int64 `json:"total,omitempty"`
	// Size and CRC identify the definition that the numbers were taken from. An older version or an edited import may
	// have replaced it.
	Size int    `json:"size"`
	CRC  uint32 `json:"crc"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// save returns the form of the numbers that load reads. It returns nil for an infinite step, which JSON cannot
// represent.
func (n *batchParams) save(definition []byte) []byte {
	value, err := json.Marshal(savedBatchParams{n.duration, n.step, float64(n.batch), &n.total, len(definition), crc32.Checksum(definition, castagnoli)})
	if err != nil {
		return nil
	}
	return value
}

// load reads the numbers that save returned for the same definition. It returns false for any other input.
func (n *batchParams) load(saved, definition []byte) bool {
	var s savedBatchParams
	if saved == nil || json.Unmarshal(saved, &s) != nil || s.Size != len(definition) || s.CRC != crc32.Checksum(definition, castagnoli) {
		return false
	}
	var err error
	*n, err = newBatchParams(s.Duration, s.Step, s.Batch)
	if err == nil && s.Total != nil {
		n.total = *s.Total
	}
	return err == nil && n.total >= 0 && n.total <= maxSteps
}

// parsedDefinition is the result of parsing a job's definition.
type parsedDefinition struct {
	text    []byte
	numbers batchParams
	stored  *store.Definition // with a MongoDB
	err     error             // why the definition is invalid
}

// define parses a definition. It runs outside turns because parsing may take long.
func (p *Protocol) define(text string) *parsedDefinition {
	if len(text) > shortDefinition {
		p.defining.Lock()
		defer p.defining.Unlock()
	}
	d := &parsedDefinition{text: []byte(text)}
	d.numbers, d.err = p.parse(d.text)
	if p.site != nil && d.err == nil {
		if d.stored, d.err = store.ParseDefinition(d.text); d.err == nil {
			d.numbers.total = d.stored.Steps()
		}
	}
	return d
}

// parse parses a definition and counts it.
func (r *registry) parse(definition []byte) (batchParams, error) {
	r.parsed.Add(1)
	return parseDefinition(definition)
}

// parseDefinition extracts the numbers of a definition.
func parseDefinition(definition []byte) (batchParams, error) {
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
		return batchParams{}, errors.New("the definition needs simulationParameters with three numbers: duration, stepDuration and batchLength")
	case err != nil:
		return batchParams{}, fmt.Errorf("the definition is no YAML that can be read: %w", err)
	}
	return newBatchParams(*p.Duration, *p.StepDuration, *p.BatchLength)
}

// member returns the value of a name in a mapping or in the mappings that it merges. It returns nil when no mapping has
// the name, or one has it twice. yaml's own decoder compares each name of a mapping with every other, which takes
// minutes for the largest call.
func member(n *yaml.Node, name string) *yaml.Node {
	seen := make(map[*yaml.Node]bool) // mappings may merge each other many times over
	for left := []*yaml.Node{n}; len(left) > 0; {
		n, left = left[len(left)-1], left[:len(left)-1]
		if n != nil && n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n == nil || seen[n] {
			continue
		}
		seen[n] = true
		next := n.Content // the children of a document, or of a list of merged mappings
		if n.Kind == yaml.MappingNode {
			value, merged, several := ownMember(n, name)
			if value != nil || several {
				return value
			}
			next = merged
		}
		for _, m := range slices.Backward(next) { // the first one comes next
			left = append(left, m)
		}
	}
	return nil
}

// ownMember returns the value of a name that the mapping itself has once, and the mappings that it merges.
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
