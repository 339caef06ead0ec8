package disbatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Overlay returns a configuration with what the active document of the collection config
// says about keys that the file does not name. The document's fields stand at its top or
// below active.
func (s *Store) Overlay(ctx context.Context, file *Config) (*Config, error) {
	cursor, err := s.config.Find(ctx, bson.D{{Key: "active", Value: bson.D{{Key: "$exists", Value: true}}}}, options.Find().SetSort(idAscending))
	if err != nil {
		return nil, err
	}
	docs, err := All(ctx, cursor, func(raw bson.Raw) bson.Raw { return raw })
	if err != nil {
		return nil, err
	}
	for _, doc := range docs {
		active := doc.Lookup("active")
		inner, nested := active.DocumentOK()
		on, isBool := active.BooleanOK()
		n, isNumber := Integer(active)
		if !nested && (!isBool || !on) && (!isNumber || n == 0) {
			continue
		}
		c := *file
		var faults []error
		for _, key := range []struct {
			name string
			into any
		}{
			{"plugins", &c.Plugins}, {"web_root", &c.WebRoot}, {"activequeues", &c.ActiveQueues},
			{"ignorequeues", &c.IgnoreQueues}, {"task_runner", &c.TaskRunner}, {"log", &c.Log},
		} {
			value := doc.Lookup(key.name)
			if nested && !Missing(inner.Lookup(key.name)) {
				value = inner.Lookup(key.name)
			}
			if Missing(value) || file.named[key.name] {
				continue
			}
			if err := json.Unmarshal([]byte(value.String()), key.into); err != nil {
				faults = append(faults, fmt.Errorf("collection config: %s: %w", key.name, err))
			}
		}
		return &c, errors.Join(faults...)
	}
	return file, nil
}
