package disbatch

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"treadle/loop/disbatch/mongodouble"
)

// A site works on every release of the server that Disbatch sites run, with a password too: MongoDB 3.6 knows neither hello nor
// SCRAM-SHA-256 nor the fields of commands that came later.
func TestReleasesOfTheServer(t *testing.T) {
	for _, version := range []mongodouble.Version{mongodouble.MongoDB36, mongodouble.MongoDB42, mongodouble.MongoDB44, mongodouble.MongoDB70} {
		for _, set := range []string{"", "rs0"} {
			t.Run(version.Name+set, func(t *testing.T) {
				s := newFaultySite(t)
				must(t, s.double.Require("jobs", map[string]string{ComponentNode: "pencil", ComponentWeb: "p"}))
				s.double.Speak(version)
				if set != "" {
					s.double.Set(set)
				}
				text := fmt.Sprintf(`{"mongohost": "mongodb://%s/?%s", "database": "jobs", "auth": {"disbatchd": "pencil", "disbatch_web": "p"}, "attributes": {"replica_set_name": %q}}`,
					s.double.Address(), limits, set)
				c, err := ParseConfig([]byte(text))
				must(t, err)
				store, err := Open(c, ComponentNode)
				must(t, err)
				s.store.Close()
				s.config, s.store = c, store // which the end of the test closes
				must(t, store.Ping(s.ctx))
				for _, fault := range store.EnsureIndexes(s.ctx) {
					t.Error(fault)
				}
				q := s.queue(d("name", "a", "plugin", "F", "threads", 2))
				ids := s.fill(&q, payloads(2)...)
				n, state := s.still("me", &q)
				if a, ok := n.next(state, nil); !ok || DecodeTask(a.Task).ID != ids[0] {
					t.Errorf("claimed %v, %v", a, ok)
				}
				must(t, n.tick(s.ctx))
				if _, _, err := (&dci{config: c, store: store}).queues(s.ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A server that is too old is refused by what it says of itself.
func TestServersThatAreTooOld(t *testing.T) {
	double := startDouble(t)
	double.Speak(mongodouble.MongoDB34)
	if err := pings(t, fmt.Sprintf(`{"mongohost": "mongodb://%s/?%s"}`, double.Address(), limits)); err == nil || !strings.Contains(err.Error(), "MongoDB 3.6") {
		t.Errorf("MongoDB 3.4 is told %v", err)
	}
}

// A document whose JSON would be that of another one is refused: the driver writes the name of a pointer as it is.
func TestDocumentsThatJSONWouldChange(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		doc, err := bson.Marshal(d("params", d("a", bson.DBPointer{DB: name})))
		must(t, err)
		if text, err := extended(doc); string(text) != want || (err == nil) != (want != "") {
			t.Errorf("%q is said as %s, %v", name, text, err)
		}
	}
	f("x", `{"params":{"a":{"$dbPointer":{"$ref":"x","$id":{"$oid":"000000000000000000000000"}}}}}`)
	f(`x","$id":{"$oid":"571fac85ee63413233049fbd"}}},"status":{"a":{"b":"`, "")
}
