package mongotest

import "go.mongodb.org/mongo-driver/bson"

// Volatile makes the double a server that keeps no journal, and says so to those who ask for journaled writes.
func (s *Server) Volatile(yes bool) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.volatile = yes
}

// Concern is the write concern that the last command of this name over a collection came with, nil without any. The
// collection is named with its database.
func (s *Server) Concern(command, collection string) bson.Raw {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.concerns[command+" "+collection]
}

// concern notes a command's write concern and refuses one that the double cannot keep.
func (c *call) concern(command string) {
	switch command {
	case "findAndModify", "insert", "update", "delete":
	default:
		return
	}
	asked, ok := c.args.Lookup("writeConcern").DocumentOK()
	c.concerns[command+" "+c.name] = asked
	if journal, _ := asked.Lookup("j").BooleanOK(); ok && journal && c.volatile {
		panic(refusal{2, "cannot use 'j' option when a host does not have journaling enabled"})
	}
}
