package main

import (
	"fmt"

	"github.com/pelletier/go-toml/v2/unstable"

	"treadle/loop"
)

// queueTable is the table of a configuration file whose tables are rules for queues, as in [queue."mail.*"].
const queueTable = "queue"

// parseRules returns the rules of the queue table of a TOML text. An error names the line.
func parseRules(path string, text []byte, table any) (rules []loop.PolicyRule, err error) {
	if table == nil {
		return nil, nil
	}
	patterns, ok := table.(map[string]any)
	if !ok {
		return nil, &configError{path: path, err: fmt.Errorf("%s is a table of tables, as in [%s.\"mail.*\"]", queueTable, queueTable)}
	}
	lines := ruleLines(text)
	for _, pattern := range sortedKeys(patterns) {
		values, ok := patterns[pattern].(map[string]any)
		if !ok {
			return nil, &configError{path, lines[ruleKey{pattern, ""}], fmt.Errorf("what is said of a queue stands in a table, as in [%s.%q]", queueTable, pattern)}
		}
		rule := loop.PolicyRule{Pattern: pattern, Values: make(map[string]string)}
		for _, key := range sortedKeys(values) {
			rule.Values[key], err = tokenOf(values[key])
			if err == nil {
				err = loop.CheckPolicyRule(loop.PolicyRule{Pattern: pattern, Values: map[string]string{key: rule.Values[key]}})
			}
			if err != nil {
				return nil, &configError{path, lines[ruleKey{pattern, key}], err}
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

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
	var p unstable.Parser
	var table []string
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		path, line := keyPath(&p, e)
		switch e.Kind {
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
			lines[key] = line
		}
	}
	return lines
}

// keyPath returns the parts of the key of an expression, and its line.
func keyPath(p *unstable.Parser, e *unstable.Node) (path []string, line int) {
	if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable && e.Kind != unstable.KeyValue {
		return nil, 0
	}
	for key := e.Key(); key.Next(); {
		line = p.Shape(key.Node().Raw).Start.Line
		path = append(path, string(key.Node().Data))
	}
	return path, line
}
