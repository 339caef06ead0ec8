package store

import (
	"context"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo/options"

	"treadle/loop/disbatch/config"
)

// Overlay returns the configuration with the values of the active document of the collection config for keys that the file does
// not set. The document has its values at its top or below active. Without such a document Overlay returns file itself; beside an
// error about a value it returns a complete configuration.
func (s *Store) Overlay(ctx context.Context, file *config.File) (*config.File, error) {
	cursor, err := s.config.Find(ctx, bson.D{{Key: "active", Value: bson.D{{Key: "$exists", Value: true}}}}, options.Find().SetSort(idAscending))
	if err != nil {
		return nil, err
	}
	docs, err := all(ctx, cursor, func(raw bson.Raw) bson.Raw { return raw })
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
		return file.Overlay(func(key string) []byte {
			value := doc.Lookup(key)
			if nested && !Missing(inner.Lookup(key)) {
				value = inner.Lookup(key)
			}
			if Missing(value) {
				return nil
			}
			return []byte(value.String())
		})
	}
	return file, nil
}
