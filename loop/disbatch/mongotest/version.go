package mongotest

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// Version is a release of MongoDB with its range of wire versions.
type Version struct {
	Name     string
	Min, Max int32
}

// Releases of a fake: those of Disbatch sites, and those at limits of the driver. MongoDB36 is the oldest that it
// supports.
var (
	MongoDB34 = Version{"3.4.24", 0, 5}
	MongoDB36 = Version{"3.6.8", 0, 6}
	MongoDB42 = Version{"4.2.24", 0, 8}
	MongoDB44 = Version{"4.4.29", 0, 9}
	MongoDB70 = Version{"7.0.0", 0, 21}
)

// First wire versions of features.
const (
	wireMessages = 6 // OP_MSG
	wireSHA256   = 7 // SCRAM-SHA-256
	wireHello    = 9 // hello in place of isMaster
)

// since holds the first wire version of fields of commands, as far as the driver or its users may send them.
var since = map[string]map[string]int32{
	"findAndModify": {"hint": 9, "comment": 9, "let": 13},
	"find":          {"allowDiskUse": 9, "let": 13},
	"update":        {"comment": 9, "let": 13},
	"delete":        {"comment": 9, "let": 13},
	"insert":        {"comment": 9},
	"aggregate":     {"let": 13},
	"createIndexes": {"commitQuorum": 9, "comment": 9},
}

// SetVersion changes the release of the fake, which is MongoDB70 initially. Open connections stay.
func (s *Server) SetVersion(v Version) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.version = v
}

// release returns the release of the fake.
func (s *Server) release() Version {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.version
}

// SetReplicaSet makes the fake the primary of a replica set. It is a standalone server initially.
func (s *Server) SetReplicaSet(name string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.replicaSet, s.store.address = name, s.address
}

// checkVersion refuses a command or field that the release does not have.
func (c *call) checkVersion(command bson.D) {
	name := command[0].Key
	if name == "hello" && c.version.Max < wireHello {
		panic(commandError{59, "no such command: 'hello'"})
	}
	for _, e := range command {
		if from := since[name][e.Key]; from > c.version.Max {
			panic(commandError{40415, fmt.Sprintf("BSON field '%s.%s' is an unknown field.", name, e.Key)})
		}
	}
}

func buildInfo(c *call) bson.D {
	return bson.D{{Key: "version", Value: c.version.Name}, {Key: "modules", Value: bson.A{"fake"}}}
}

// hello answers the first command of a connection with the version, the limits and the mechanisms of authentication.
func hello(c *call) bson.D {
	mechanisms := bson.A{"SCRAM-SHA-1"}
	if c.version.Max >= wireSHA256 {
		mechanisms = append(mechanisms, "SCRAM-SHA-256")
	}
	reply := bson.D{
		{Key: "ismaster", Value: true},
		{Key: "maxBsonObjectSize", Value: int32(maxDocument)}, {Key: "maxMessageSizeBytes", Value: int32(maxMessage)},
		{Key: "maxWriteBatchSize", Value: int32(maxBatch)}, {Key: "localTime", Value: time.Now()},
		{Key: "minWireVersion", Value: c.version.Min}, {Key: "maxWireVersion", Value: c.version.Max}, {Key: "readOnly", Value: false},
		{Key: "saslSupportedMechs", Value: mechanisms},
	}
	if c.version.Max >= wireHello {
		reply = append(reply, bson.E{Key: "isWritablePrimary", Value: true}, bson.E{Key: "helloOk", Value: true})
	}
	if c.replicaSet != "" {
		reply = append(reply, bson.E{Key: "setName", Value: c.replicaSet}, bson.E{Key: "setVersion", Value: int32(1)},
			bson.E{Key: "hosts", Value: bson.A{c.address}}, bson.E{Key: "me", Value: c.address}, bson.E{Key: "primary", Value: c.address})
	}
	if behind, _ := c.args.Lookup("loadBalanced").BooleanOK(); behind { // a driver in this mode does not monitor the server
		reply = append(reply, bson.E{Key: "serviceId", Value: primitive.ObjectID{1}})
	}
	return reply
}
