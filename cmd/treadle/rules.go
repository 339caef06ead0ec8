package main

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/pelletier/go-toml/v2/unstable"

	"treadle/loop"
)

// queueTable is the table of a configuration file whose tables are rules for queues, as in [queue."mail.*"].
const queueTable = "queue"

// parseRules returns the rules of the queue table of a TOML text. Each error names its line.
func parseRules(path string, text []byte, table any) (rules []loop.PolicyRule, faults problems) {
	if table == nil {
		return nil, nil
	}
	patterns, ok := table.(map[string]any)
	if !ok {
		return nil, problems{&configError{path: path, err: fmt.Errorf("%s is a table of tables, as in [%s.\"mail.*\"]", queueTable, queueTable)}}
	}
	lines := ruleLines(text)
	for _, pattern := range sortedKeys(patterns) {
		values, ok := patterns[pattern].(map[string]any)
		if !ok {
			faults = append(faults, &configError{path, lines[ruleKey{pattern, ""}],
				fmt.Errorf("what is said of a queue stands in a table, as in [%s.%q]", queueTable, pattern)})
			continue
		}
		rule := loop.PolicyRule{Pattern: pattern, Values: make(map[string]string)}
		for _, key := range sortedKeys(values) {
			value, err := tokenOf(values[key])
			if err == nil {
				err = loop.CheckPolicyRule(loop.PolicyRule{Pattern: pattern, Values: map[string]string{key: value}})
			}
			if err != nil {
				faults = append(faults, &configError{path, lines[ruleKey{pattern, key}], withNearestKey(err, key)})
				if value = standIns[key]; value == "" {
					continue
				}
			}
			rule.Values[key] = value
		}
		if loop.CheckPolicyRule(loop.PolicyRule{Pattern: pattern}) == nil {
			rules = append(rules, rule)
		}
	}
	for _, err := range loop.CheckPolicyRules(rules) {
		line := 0
		if wrong := (*loop.PolicyError)(nil); errors.As(err, &wrong) {
			line = lines[ruleKey{wrong.Pattern, wrong.Key}]
		}
		faults = append(faults, &configError{path, line, err})
	}
	return rules, faults
}

// withNearestKey adds the nearest key to an error about a rule that has keys unknown to this program.
func withNearestKey(err error, keys ...string) error {
	names := loop.PolicyKeys()
	for _, key := range keys {
		if meant := nearestOf(key, names); meant != "" && !slices.Contains(names, key) {
			return &reworded{fmt.Sprintf("%v%s", err, meant), err}
		}
	}
	return err
}

// standIns are taken for wrong values of keys that others need, which are then not at fault as well.
var standIns = map[string]string{"key": "name before :", "fair": "key"}

// tokenOf returns a value of a rule as treadle queue set has it.
func tokenOf(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case int64:
		return fmt.Sprint(v), nil
	}
	return "", fmt.Errorf("%v cannot be its value: write a number, or a text in quotes", value)
}

// ruleKey is a key of a rule, or with an empty key the rule itself.
type ruleKey struct{ pattern, key string }

// ruleLines says in which line each key of the queue table stands in a TOML text that could be parsed.
func ruleLines(text []byte) map[ruleKey]int {
	lines := make(map[ruleKey]int)
	var table []string
	for k := range keysOf(text) {
		path := k.path
		switch k.kind {
		case unstable.Table, unstable.ArrayTable:
			table = path
		case unstable.KeyValue:
			path = append(table[:len(table):len(table)], path...)
		}
		if len(path) > 1 && path[0] == queueTable {
			key := ruleKey{pattern: path[1]}
			if len(path) > 2 {
				key.key = path[2]
			}
			lines[key] = k.line
		}
	}
	return lines
}

// fileKey is a key of a TOML text, or the name of a table.
type fileKey struct {
	kind unstable.Kind
	path []string
	line int
	keys int // itself, and those of inline tables in its value
}

// keysOf yields the keys and tables of a TOML text that could be parsed. It counts the lines once: the parser's own
// Shape begins at the start of the text each time.
func keysOf(text []byte) iter.Seq[fileKey] {
	return func(yield func(fileKey) bool) {
		var p unstable.Parser
		p.Reset(text)
		line, counted := 1, uint32(0)
		for p.NextExpression() {
			e := p.Expression()
			if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable && e.Kind != unstable.KeyValue {
				continue
			}
			k := fileKey{kind: e.Kind, keys: max(1, keysIn(e))}
			for part := e.Key(); part.Next(); {
				at := part.Node().Raw.Offset
				line += bytes.Count(text[counted:at], []byte{'\n'})
				counted = at
				k.path = append(k.path, string(part.Node().Data))
			}
			if k.line = line; !yield(k) {
				return
			}
		}
	}
}
