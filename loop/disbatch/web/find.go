package web

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/store"
)

// maxResult bounds the memory of a search result in bytes.
const maxResult = 32 << 20

// errLongResult reports that a search result exceeds maxResult.
var errLongResult = fmt.Errorf("the tasks have more than %dMiB: ask for fewer, or for fewer of their fields", maxResult>>20)

// find returns the tasks of a query. It takes the request's large turn when the tasks have many bytes.
func (c *commandInterface) find(ctx context.Context, q *query) ([]store.Task, error) {
	o, bytes := q.options, 0
	o.Each = func(doc bson.Raw) (bson.Raw, error) {
		if q.omitOutput {
			doc = withoutOutput(doc)
		}
		if bytes += len(doc); bytes > maxResult {
			return nil, errLongResult
		}
		if bytes > largeBody {
			return doc, takeLargeTurn(ctx)
		}
		return doc, nil
	}
	return c.store.Search(ctx, q.filter, o)
}

// terse replaces an output that the request did not ask for.
const terse = "[terse mode]"

// withoutOutput returns a task's document with its outputs replaced by terse.
func withoutOutput(doc bson.Raw) bson.Raw {
	elements, err := doc.Elements()
	out := make(bson.D, len(elements))
	for i, e := range elements {
		out[i] = bson.E{Key: e.Key(), Value: e.Value()}
		if (e.Key() == store.FileStdout || e.Key() == store.FileStderr) && store.Text(e.Value()) != "" {
			out[i].Value = terse
		}
	}
	short, merr := bson.Marshal(out)
	if err != nil || merr != nil {
		return doc // the document is damaged
	}
	return short
}
