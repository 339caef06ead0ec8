package mongotest

import (
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
)

// listDatabases lists the databases in which a collection has a document or an index.
func listDatabases(c *call) bson.D {
	names := make(map[string]bool)
	for name, in := range c.collections {
		if database, _, ok := strings.Cut(name, "."); ok && (in.records.Len() > 0 || len(in.indexes) > 0) {
			names[database] = true
		}
	}
	all := bson.A{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, bson.D{{Key: "name", Value: name}, {Key: "empty", Value: false}})
	}
	return bson.D{{Key: "databases", Value: all}}
}
