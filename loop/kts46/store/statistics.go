package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/codec/kts46"
)

// maxStatistics bounds a statistics document in bytes. XML-RPC takes ten times as much. The idle times of a hundred
// thousand cars take a quarter of it.
const maxStatistics = 8 << 20

// Statistics reads the results of a job's workers in the form of XML-RPC; idle includes the idle time of each car. It
// returns ErrNoProject or ErrNoJob if there is no such document.
func (s *Store) Statistics(ctx context.Context, project, name string, idle bool) (kts46.Struct, error) {
	if err := s.needProject(ctx, project); err != nil {
		return nil, err
	}
	fields := bson.D{{Key: "idleTimes.values", Value: 0}}
	if idle {
		fields = nil
	}
	doc, found, err := s.find(ctx, project, statistics, byID(name), fields)
	if err != nil || !found {
		return nil, cmpError(err, ErrNoJob)
	}
	if len(doc) > maxStatistics {
		return nil, badData("the statistics of the job %s in the database %s have %d bytes, more than %d: read them in MongoDB", name,
			project, len(doc), maxStatistics)
	}
	all, err := members(doc)
	if err != nil {
		return nil, badData("the statistics of the job %s in the database %s: %v", name, project, err)
	}
	var shown kts46.Struct
	for _, m := range all {
		if m.Name == "_id" {
			continue
		}
		if in, ok := m.Value.(kts46.Struct); ok && m.Name == "idleTimes" && !idle {
			m.Value = append(in, kts46.Member{Name: "values", Value: nil})
		}
		shown = append(shown, m)
	}
	return shown, nil
}

// members converts the fields of a document.
func members(doc bson.Raw) (all kts46.Struct, err error) {
	elements, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	for _, e := range elements {
		v, err := value(e.Value())
		if err != nil {
			return nil, err
		}
		all = append(all, kts46.Member{Name: e.Key(), Value: v})
	}
	return all, nil
}

// value converts a value to XML-RPC. Types without a form there become text.
func value(v bson.RawValue) (any, error) {
	switch v.Type {
	case bson.TypeNull, bson.TypeUndefined:
		return nil, nil
	case bson.TypeDouble:
		return v.Double(), nil
	case bson.TypeInt32:
		return int64(v.Int32()), nil
	case bson.TypeInt64:
		return v.Int64(), nil
	case bson.TypeBoolean:
		return v.Boolean(), nil
	case bson.TypeString:
		return v.StringValue(), nil
	case bson.TypeDateTime:
		return kts46.NewDateTime(time.UnixMilli(v.DateTime())), nil
	case bson.TypeEmbeddedDocument:
		return members(v.Document())
	case bson.TypeArray:
		values, err := v.Array().Values()
		if err != nil {
			return nil, err
		}
		all := make([]any, len(values))
		for i := range values {
			if all[i], err = value(values[i]); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return v.String(), nil
}
