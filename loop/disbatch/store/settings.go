package store

import (
	"context"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// ActiveSettings returns the settings of the active document of the collection config, for config.File.Overlay: a
// function that returns the JSON of a key, or nil if the document does not have the key. The function is nil without
// such a document. The document has its settings at its top or below active.
func (s *Store) ActiveSettings(ctx context.Context) (value func(key string) []byte, err error) {
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
		return func(key string) []byte {
			value := doc.Lookup(key)
			if nested && !Missing(inner.Lookup(key)) {
				value = inner.Lookup(key)
			}
			if Missing(value) {
				return nil
			}
			return []byte(value.String())
		}, nil
	}
	return nil, nil
}
