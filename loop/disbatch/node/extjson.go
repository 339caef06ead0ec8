package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/bson"
)

// extendedJSON returns a document as extended JSON, the form that plugins and workers receive. It fails for a damaged
// document and for values without such a form.
func extendedJSON(doc bson.Raw) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // the driver panics on lengths that are too small
			b, err = nil, fmt.Errorf("the task's document cannot be read: %v", p)
		}
	}()
	b, err = bson.MarshalExtJSON(doc, false, false)
	if err == nil && !convertible(b, doc) {
		err = errors.New("the driver writes it wrongly")
	}
	if err != nil {
		return nil, fmt.Errorf("the task's document cannot be said in JSON: %w", err)
	}
	return b, nil
}

// convertible reports whether b is JSON that stands for the document. The driver does not escape the name of a
// DBPointer, so such a name can break the JSON or add members to it.
func convertible(b []byte, doc bson.Raw) bool {
	return json.Valid(b) && (!bytes.Contains(b, []byte(`"$dbPointer"`)) || faithful(doc))
}

// faithful reports whether canonical extended JSON of a document converts back to the same document.
func faithful(doc bson.Raw) bool {
	b, err := bson.MarshalExtJSON(doc, true, false)
	var again bson.D
	if err != nil || bson.UnmarshalExtJSON(b, true, &again) != nil {
		return false
	}
	same, err := bson.Marshal(again)
	return err == nil && bytes.Equal(same, doc)
}
