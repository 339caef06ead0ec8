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
func (c *dci) getNodes(r *http.Request, _ any) reply {
	nodes, err := c.store.Nodes(r.Context())
	if err != nil {
		return c.failed("get current nodes", err).reply()
	}
	out := make([]any, 0, len(nodes))
	for i := range nodes {
		out = append(out, nodeJSON(&nodes[i]))
	}
	return success(out)
}

// getNode returns one node.
func (c *dci) getNode(r *http.Request, _ any) reply {
	name := r.PathValue("node")
	node, err := c.store.Node(r.Context(), name)
	if err != nil {
		return c.missing("node", "get node "+name, err, nil).reply()
	}
	return success(nodeJSON(&node))
}

// nodeJSON returns a node's document with its id as text and its time in milliseconds.
func nodeJSON(n *store.Node) any {
	instead := object{"id": n.ID.Hex()}
	if !n.Timestamp.IsZero() {
		instead["timestamp"] = n.Timestamp.UnixMilli()
	}
	return documentJSON(n.Raw, instead)
}

// postNode changes the limit of a node.
func (c *dci) postNode(r *http.Request, params any) reply {
	result, fault := c.updateNode(r.Context(), r.PathValue("node"), params)
	return answer(updateResult(result), fault)
}

func (c *dci) updateNode(ctx context.Context, name string, params any) (updated store.Updated, fault *refusal) {
	given, ok := params.(bson.D)
	if !ok || len(given) == 0 {
		return updated, bad("No params")
	}
	if name, ok := unknown(given, "maxthreads"); ok {
		return updated, bad("Invalid param").with(object{"param": name})
	}
	most := store.NoLimit
	if value := get(given, "maxthreads"); value != nil {
		if most, ok = limit(value); !ok {
			return updated, bad("maxthreads must be a non-negative integer or null%s", overLimit(value))
		}
	}
	node, err := c.store.Node(ctx, name)
	if err != nil {
		return updated, c.missing("node", "update node "+name, err, updateResult(updated))
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
func (c *dci) updateFault(kind, name string, updated store.Updated, err error) *refusal {
	var other *store.DuplicateError
	switch {
	case errors.As(err, &other):
		return duplicate(other, "MongoDB::UpdateResult", object{kind: name}, nil)
	case err != nil:
		return c.failed("update "+kind+" "+name, err)
	case updated.Matched != 1:
		return c.missing(kind, "", store.ErrNotFound, updateResult(updated))
	}
	return nil
}
