package web

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/store"
)

// getNodes returns all nodes.
func (c *commandInterface) getNodes(r *http.Request, _ params) reply {
	nodes, err := c.store.Nodes(r.Context())
	if err != nil {
		return c.databaseError("get current nodes", err).reply()
	}
	out := make([]any, 0, len(nodes))
	for i := range nodes {
		out = append(out, nodeJSON(&nodes[i]))
	}
	return success(out)
}

// getNode returns one node.
func (c *commandInterface) getNode(r *http.Request, _ params) reply {
	name := r.PathValue("node")
	node, err := c.store.Node(r.Context(), name)
	if err != nil {
		return c.lookupError("node", "get node "+name, err, nil).reply()
	}
	return success(nodeJSON(&node))
}

// nodeJSON returns a node's document with its id as text and its time in milliseconds.
func nodeJSON(n *store.Node) any {
	replace := object{"id": n.ID.Hex()}
	if !n.Timestamp.IsZero() {
		replace["timestamp"] = n.Timestamp.UnixMilli()
	}
	return documentJSON(n.Raw, replace)
}

// postNode changes the limit of a node.
func (c *commandInterface) postNode(r *http.Request, p params) reply {
	result, refusal := c.updateNode(r.Context(), r.PathValue("node"), p.fields)
	return answer(updateResult(result), refusal)
}

// updateNode changes the limit of a node: the field maxthreads, which is a number, or null for no limit.
func (c *commandInterface) updateNode(ctx context.Context, name string, given bson.D) (updated store.Updated, refusal *requestError) {
	if len(given) == 0 {
		return updated, badRequest("No params")
	}
	if name, ok := unknown(given, "maxthreads"); ok {
		return updated, badRequest("Invalid param").with(object{"param": name})
	}
	most := store.NoLimit
	if value := get(given, "maxthreads"); value != nil {
		var ok bool
		if most, ok = threadLimit(value); !ok {
			return updated, badRequest("maxthreads must be a non-negative integer or null%s", overLimit(value))
		}
	}
	node, err := c.store.Node(ctx, name)
	if err != nil {
		return updated, c.lookupError("node", "update node "+name, err, updateResult(updated))
	}
	updated, err = c.store.SetNodeLimit(ctx, node.ID, most)
	return updated, c.updateFault("node", name, updated, err)
}

// overLimit is the end of the error about a wrong limit: for digits that are too large it says the largest limit.
func overLimit(v any) string {
	if digits.MatchString(scalar(v)) {
		return ", and at most " + strconv.Itoa(store.MaxLimit)
	}
	return ""
}

// updateFault is the refusal of a failed update of a queue or node. It is nil if the update has happened.
func (c *commandInterface) updateFault(kind, name string, updated store.Updated, err error) *requestError {
	var other *store.DuplicateError
	switch {
	case errors.As(err, &other):
		return duplicate(other, "MongoDB::UpdateResult", object{kind: name}, nil)
	case err != nil:
		return c.databaseError("update "+kind+" "+name, err)
	case updated.Matched != 1:
		return c.lookupError(kind, "", store.ErrNotFound, updateResult(updated))
	}
	return nil
}
