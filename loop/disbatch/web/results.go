package web

import (
	"maps"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// Results of writes have the form of the original's driver, each under the name of its class.

// written are the fields of every result.
func written(fields object) object {
	fields["write_errors"], fields["write_concern_errors"] = []any{}, []any{}
	return fields
}

func updateResult(r store.Updated) object {
	return object{"MongoDB::UpdateResult": written(object{"upserted_id": nil, "matched_count": r.Matched, "modified_count": r.Modified})}
}

func deleteResult(n int64) object {
	return object{"MongoDB::DeleteResult": written(object{"deleted_count": n})}
}

func insertOneResult(id primitive.ObjectID) object {
	return object{"MongoDB::InsertOneResult": written(object{"inserted_id": oid(id)})}
}

func insertManyResult(ids []primitive.ObjectID) object {
	return object{"MongoDB::InsertManyResult": written(object{"acknowledged": 1, "inserted": inserted(ids)})}
}

func inserted(ids []primitive.ObjectID) []any {
	out := make([]any, len(ids))
	for i, id := range ids {
		out[i] = object{"_id": oid(id), "index": i}
	}
	return out
}

// duplicate is the refusal of a write of the fields op by a unique index. The reply has a result of the class and the
// members of body.
func duplicate(by *store.DuplicateError, class string, op, body object) *requestError {
	const fault = "MongoDB::DuplicateKeyError"
	result := object{
		"write_errors": []any{object{"index": 0, "code": by.Code, "errmsg": by.Message, "op": op}}, "write_concern_errors": []any{},
	}
	members := object{fault: object{
		"message": by.Message, "code": by.Code, "previous_exception": "", "error_labels": []any{}, "result": object{class: result},
	}}
	maps.Copy(members, body)
	return badRequest("%s: %s", fault, by.Message).with(members)
}
