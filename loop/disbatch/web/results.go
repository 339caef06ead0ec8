package web

import (
	"errors"
	"net/http"

	"go.mongodb.org/mongo-driver/mongo"
)

// Results of writes have the form of the original's driver, under its class names.

// written are the fields of every result.
func written(fields object) object {
	fields["write_errors"], fields["write_concern_errors"] = []any{}, []any{}
	return fields
}

// updateResult returns the result of an update; nil: no document matched.
func updateResult(r *mongo.UpdateResult) object {
	if r == nil {
		r = &mongo.UpdateResult{}
	}
	return object{"MongoDB::UpdateResult": written(object{
		"upserted_id": oid(r.UpsertedID), "matched_count": r.MatchedCount, "modified_count": r.ModifiedCount,
	})}
}

func deleteResult(n int64) object {
	return object{"MongoDB::DeleteResult": written(object{"deleted_count": n})}
}

// insertOneResult returns the result of one insertion without its class.
func insertOneResult(r *mongo.InsertOneResult) object {
	return written(object{"inserted_id": oid(r.InsertedID)})
}

// insertManyResult returns the result of several insertions.
func insertManyResult(ids []any) object {
	return object{"MongoDB::InsertManyResult": written(object{"acknowledged": 1, "inserted": inserted(ids)})}
}

func inserted(ids []any) []any {
	out := make([]any, len(ids))
	for i, id := range ids {
		out[i] = object{"_id": oid(id), "index": i}
	}
	return out
}

// duplicate is the reply to a write of these fields that a unique index refused, with a result of this class.
func duplicate(err error, of string, op, fields object) reply {
	const class = "MongoDB::DuplicateKeyError"
	message, code := err.Error(), 11000
	var refused mongo.WriteException
	if errors.As(err, &refused) && len(refused.WriteErrors) > 0 {
		message, code = refused.WriteErrors[0].Message, refused.WriteErrors[0].Code
	}
	result := object{
		"write_errors": []any{object{"index": 0, "code": code, "errmsg": message, "op": op}}, "write_concern_errors": []any{},
	}
	body := object{
		"error": class + ": " + message,
		class: object{
			"message": message, "code": code, "previous_exception": "", "error_labels": []any{},
			"result": object{of: result},
		},
	}
	for name, value := range fields {
		body[name] = value
	}
	return reply{status: http.StatusBadRequest, body: body}
}
