package mongotest

import "go.mongodb.org/mongo-driver/bson"

// WithoutJournal makes the fake refuse journaled writes, as a server without a journal does.
func (s *Server) WithoutJournal(yes bool) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.noJournal = yes
}

// WriteConcern returns the write concern of the last command of a name on a collection, or nil. The name of the
// collection begins with its database.
func (s *Server) WriteConcern(command, collection string) bson.Raw {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.concerns[command+" "+collection]
}

// checkConcern records the write concern of a command. It refuses j without a journal.
func (c *call) checkConcern(command string) {
	switch command {
	case "findAndModify", "insert", "update", "delete":
	default:
		return
	}
	asked, ok := c.args.Lookup("writeConcern").DocumentOK()
	c.concerns[command+" "+c.name] = asked
	if journal, _ := asked.Lookup("j").BooleanOK(); ok && journal && c.noJournal {
		panic(commandError{2, "cannot use 'j' option when a host does not have journaling enabled"})
	}
}
