package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"treadle/loop"
)

// cronTable is the table of a configuration file that stands once for each cron entry, as [[cron]].
const cronTable = "cron"

// cronKeys sets the values of an entry by their keys.
var cronKeys = map[string]func(e *loop.CronEntry) any{
	"name":     func(e *loop.CronEntry) any { return &e.Name },
	"schedule": func(e *loop.CronEntry) any { return &e.Schedule },
	"zone":     func(e *loop.CronEntry) any { return &e.Zone },
	"queue":    func(e *loop.CronEntry) any { return &e.Queue },
	"workload": func(e *loop.CronEntry) any { return &e.Workload },
	"priority": func(e *loop.CronEntry) any { return &e.Priority },
	"missed":   func(e *loop.CronEntry) any { return &e.Missed },
	"overlap":  func(e *loop.CronEntry) any { return &e.Overlap },
}

// parseCron returns the entries of the cron tables of a TOML text. Each error names its line.
func parseCron(path string, text []byte, tables any) (entries []loop.CronEntry, faults problems) {
	if tables == nil {
		return nil, nil
	}
	list, ok := tables.([]any)
	lines := cronLines(text)
	first := make(map[string]int) // the line of each name
	for n, one := range list {
		var values map[string]any
		if values, ok = one.(map[string]any); !ok {
			break
		}
		fault := func(key string, err error) {
			faults = append(faults, &configError{path, cmp.Or(lines[cronLine{n, key}], lines[cronLine{n, ""}]), err})
		}
		e := cronEntryOf(values, fault)
		if named := lines[cronLine{n, "name"}]; first[e.Name] != 0 {
			fault("name", fmt.Errorf("cron entry %q, name: line %d has an entry of this name", e.Name, first[e.Name]))
		} else {
			first[e.Name] = named
		}
		entries = append(entries, e)
	}
	if !ok {
		return nil, problems{&configError{path: path, err: fmt.Errorf("each cron entry is a table [[%s]]", cronTable)}}
	}
	return entries, faults
}

// cronEntryOf returns the entry of a table. It calls fault with each key that is wrong or missing.
func cronEntryOf(values map[string]any, fault func(key string, err error)) (e loop.CronEntry) {
	wrong := false
	for _, key := range sortedKeys(values) {
		if err := setCronValue(&e, key, values[key]); err != nil {
			wrong = true
			fault(key, err)
		}
	}
	if key, err := loop.CheckCronEntry(&e); err != nil && !wrong {
		fault(key, fmt.Errorf("cron entry %q, %w", e.Name, err))
	}
	return e
}

// setCronValue sets a key of a cron entry to a value of the configuration file.
func setCronValue(e *loop.CronEntry, key string, value any) error {
	place := cronKeys[key]
	if place == nil {
		names := sortedKeys(cronKeys)
		return fmt.Errorf("unknown key %q of a cron entry%s; the keys are %s", key, nearestOf(key, names), strings.Join(names, ", "))
	}
	switch to := place(e).(type) {
	case *string:
		if text, ok := value.(string); ok {
			*to = text
			return nil
		}
		return fmt.Errorf("%s: %v cannot be its value: write a text in quotes", key, value)
	case *int64:
		if number, ok := value.(int64); ok {
			*to = number
			return nil
		}
	}
	return fmt.Errorf("%s: %v cannot be its value: write a number", key, value)
}

// cronLine is a key of the cron table of a number, or with an empty key the table itself.
type cronLine struct {
	table int
	key   string
}

// cronLines says in which line each key of the cron tables stands in a TOML text that could be parsed.
func cronLines(text []byte) map[cronLine]int {
	lines := make(map[cronLine]int)
	table, inside := -1, false
	for k := range keysOf(text) {
		switch k.kind {
		case unstable.ArrayTable:
			if inside = len(k.path) == 1 && k.path[0] == cronTable; inside {
				table++
				lines[cronLine{table, ""}] = k.line
			}
		case unstable.Table:
			inside = false
		case unstable.KeyValue:
			if inside {
				lines[cronLine{table, k.path[0]}] = k.line
			}
		}
	}
	return lines
}
