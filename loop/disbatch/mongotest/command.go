package mongotest

import (
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/bson"
)

// commandError is an error reply to a client. Functions of commands panic with it.
type commandError struct {
	code int32
	text string
}

// store is the data of a fake. Its lock makes every command atomic.
type store struct {
	mu          sync.Mutex
	collections map[string]*collection
	cursors     map[int64]*cursor
	lastCursor  int64
	version     Version
	replicaSet  string // name of the replica set with the fake as its primary; empty: none
	address     string // address in the replica set
	concerns    map[string]bson.Raw
	noJournal   bool
}

// cursor holds the documents of a result that are left for getMore.
type cursor struct {
	name string
	rest []bson.Raw
}

// newStore returns an empty store.
func newStore() *store {
	return &store{collections: make(map[string]*collection), cursors: make(map[int64]*cursor), version: MongoDB70, concerns: make(map[string]bson.Raw)}
}

// call is one command with its arguments.
type call struct {
	*store
	args bson.Raw
	name string // database and name of the collection
}

// commands holds the functions of all commands by name.
var commands = map[string]func(*call) bson.D{
	"hello": hello, "ismaster": hello, "isMaster": hello, "ping": nothing, "endSessions": nothing, "killCursors": nothing,
	"buildInfo": buildInfo, "buildinfo": buildInfo,
	"find": find, "getMore": getMore, "findAndModify": findAndModify, "insert": insert, "update": update, "delete": remove,
	"count": count, "aggregate": aggregate, "createIndexes": createIndexes, "listIndexes": listIndexes, "drop": drop,
	"dropDatabase": dropDatabase, "listDatabases": listDatabases,
}

// run executes a command and returns the reply.
func (s *store) run(command bson.D) (reply bson.D) {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case commandError:
			reply = errorReply(why)
		default:
			panic(why)
		}
	}()
	run := commands[command[0].Key]
	if run == nil {
		return errorReply(commandError{59, "no such command: " + command[0].Key})
	}
	c := &call{store: s, args: document(command)}
	database, _ := c.args.Lookup("$db").StringValueOK()
	name, _ := c.args.Lookup(command[0].Key).StringValueOK()
	c.name = database + "." + name
	s.mu.Lock()
	defer s.mu.Unlock()
	c.checkVersion(command)
	c.checkConcern(command[0].Key)
	return append(run(c), bson.E{Key: "ok", Value: 1.0})
}

// errorReply returns the reply for an error.
func errorReply(r commandError) bson.D {
	return bson.D{{Key: "ok", Value: 0.0}, {Key: "errmsg", Value: r.text}, {Key: "code", Value: r.code}}
}

// nothing runs a command without an effect.
func nothing(*call) bson.D { return nil }

// collection returns the collection of the call, and creates it if necessary.
func (c *call) collection() *collection {
	if c.collections[c.name] == nil {
		c.collections[c.name] = newCollection(c.name)
	}
	return c.collections[c.name]
}

// document returns an argument that is a document, or an empty document.
func (c *call) document(name string) bson.Raw {
	if d, ok := c.args.Lookup(name).DocumentOK(); ok {
		return d
	}
	return document(nil)
}

// integer returns an argument that is a number, or 0.
func (c *call) integer(name string) int { return int(number(c.args.Lookup(name))) }

// list returns an argument that is an array.
func (c *call) list(name string) []bson.RawValue { return list(c.args.Lookup(name)) }

// isTrue reports whether a value is true or a number other than 0.
func isTrue(v bson.RawValue) bool {
	b, ok := v.BooleanOK()
	return ok && b || !ok && number(v) != 0
}

// find answers the command find with the first batch. A single batch, or a negative limit, has no cursor.
func find(c *call) bson.D {
	limit := c.integer("limit")
	single := limit < 0 || isTrue(c.args.Lookup("singleBatch"))
	var docs []bson.Raw
	for _, r := range c.collection().find(c.document("filter"), c.document("sort"), c.integer("skip"), max(limit, -limit)) {
		docs = append(docs, projected(r.doc, c.document("projection")))
	}
	size := c.integer("batchSize")
	if c.args.Lookup("batchSize").Type == 0 {
		size = 101
	}
	return c.batch("firstBatch", c.name, docs, size, single)
}

// batch returns a reply with the first documents and a cursor for the others.
func (c *call) batch(key, name string, docs []bson.Raw, size int, single bool) bson.D {
	if size <= 0 {
		size = len(docs)
	}
	bytes, n := 0, 0
	for n < len(docs) && n < size && (n == 0 || bytes+len(docs[n]) < maxDocument) {
		bytes += len(docs[n])
		n++
	}
	id := int64(0)
	if n < len(docs) && !single {
		c.lastCursor++
		id = c.lastCursor
		c.cursors[id] = &cursor{name: name, rest: docs[n:]}
	}
	return bson.D{{Key: "cursor", Value: bson.D{{Key: key, Value: append([]bson.Raw{}, docs[:n]...)}, {Key: "id", Value: id}, {Key: "ns", Value: name}}}}
}

func getMore(c *call) bson.D {
	id := c.args.Lookup("getMore").AsInt64()
	open := c.cursors[id]
	if open == nil {
		panic(commandError{43, fmt.Sprintf("cursor id %d not found", id)})
	}
	delete(c.cursors, id)
	return c.batch("nextBatch", open.name, open.rest, c.integer("batchSize"), false)
}

// findAndModify answers the command findAndModify: it removes, updates or upserts the first document of the sort.
func findAndModify(c *call) bson.D {
	in, filter, order := c.collection(), c.document("query"), c.document("sort")
	if len(fields(order)) == 0 { // without a sort any order is right: return the newest, as a busy server may
		order = document(bson.D{{Key: "_id", Value: -1}})
	}
	found := in.find(filter, order, 0, 1)
	var value any
	last := bson.D{{Key: "n", Value: int32(len(found))}, {Key: "updatedExisting", Value: len(found) > 0}}
	switch {
	case isTrue(c.args.Lookup("remove")):
		for _, r := range found {
			in.remove(r)
			value = r.doc
		}
	case len(found) > 0:
		value = found[0].doc
		r := in.put(found[0], changed(found[0].doc, c.document("update"), false))
		if isTrue(c.args.Lookup("new")) {
			value = r.doc
		}
	case isTrue(c.args.Lookup("upsert")):
		r := in.put(nil, withID(changed(upsertBase(filter), c.document("update"), true)))
		last = bson.D{{Key: "n", Value: int32(1)}, {Key: "updatedExisting", Value: false}, {Key: "upserted", Value: r.id}}
		if isTrue(c.args.Lookup("new")) {
			value = r.doc
		}
	}
	if doc, ok := value.(bson.Raw); ok {
		value = projected(doc, c.document("fields"))
	}
	return bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: value}}
}

// each runs the statements of a write and returns their errors.
func (c *call) each(name string, do func(i int, statement bson.Raw)) (faults bson.A) {
	ordered := c.args.Lookup("ordered").Type == 0 || isTrue(c.args.Lookup("ordered"))
	for i, v := range c.list(name) {
		if fault := attempt(func() { do(i, v.Document()) }); fault != nil {
			faults = append(faults, bson.D{{Key: "index", Value: int32(i)}, {Key: "code", Value: fault.code}, {Key: "errmsg", Value: fault.text}})
			if ordered {
				break
			}
		}
	}
	return faults
}

// attempt runs a statement and returns its error, or nil.
func attempt(do func()) (fault *commandError) {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case commandError:
			fault = &why
		default:
			panic(why)
		}
	}()
	do()
	return nil
}

// written returns the reply to a write.
func written(n int, faults bson.A, more ...bson.E) bson.D {
	d := append(bson.D{{Key: "n", Value: int32(n)}}, more...)
	if len(faults) > 0 {
		d = append(d, bson.E{Key: "writeErrors", Value: faults})
	}
	return d
}

func insert(c *call) bson.D {
	n := 0
	faults := c.each("documents", func(_ int, doc bson.Raw) {
		c.collection().put(nil, withID(append(bson.Raw(nil), doc...)))
		n++
	})
	return written(n, faults)
}

// update answers the command update, with upserts.
func update(c *call) bson.D {
	matched, modified, upserted := 0, 0, bson.A{}
	faults := c.each("updates", func(i int, u bson.Raw) {
		m, n, id := c.collection().update(u.Lookup("q").Document(), u.Lookup("u").Document(), isTrue(u.Lookup("multi")), isTrue(u.Lookup("upsert")))
		matched, modified = matched+m, modified+n
		if id.Type != 0 {
			matched++
			upserted = append(upserted, bson.D{{Key: "index", Value: int32(i)}, {Key: "_id", Value: id}})
		}
	})
	more := []bson.E{{Key: "nModified", Value: int32(modified)}}
	if len(upserted) > 0 {
		more = append(more, bson.E{Key: "upserted", Value: upserted})
	}
	return written(matched, faults, more...)
}

func remove(c *call) bson.D {
	n := 0
	faults := c.each("deletes", func(_ int, d bson.Raw) {
		for _, r := range c.collection().find(d.Lookup("q").Document(), document(nil), 0, int(number(d.Lookup("limit")))) {
			c.collection().remove(r)
			n++
		}
	})
	return written(n, faults)
}

func count(c *call) bson.D {
	found := c.collection().find(c.document("query"), document(nil), c.integer("skip"), c.integer("limit"))
	return bson.D{{Key: "n", Value: int32(len(found))}}
}

func aggregate(c *call) bson.D {
	size := 101
	if v := c.document("cursor").Lookup("batchSize"); v.Type != 0 {
		size = int(number(v))
	}
	return c.batch("firstBatch", c.name, c.collection().aggregate(c.list("pipeline")), size, false)
}

// createIndexes answers the command createIndexes. It enforces unique indexes, and refuses a different index of the
// same name.
func createIndexes(c *call) bson.D {
	in := c.collection()
	before := len(in.indexes)
	for _, v := range c.list("indexes") {
		asked := v.Document()
		name, _ := asked.Lookup("name").StringValueOK()
		x := &index{name: name, keys: asked.Lookup("key").Document(), unique: isTrue(asked.Lookup("unique")), taken: make(map[string]bson.RawValue)}
		known := false
		for _, have := range in.indexes {
			if have.name != x.name {
				continue
			}
			if known = true; have.unique != x.unique {
				panic(commandError{86, "an index of the name " + name + " has other options"})
			}
		}
		if known {
			continue
		}
		for r := range scan(in.records, false) {
			if _, taken := x.taken[x.key(r.doc)]; taken && x.unique {
				panic(in.duplicate(name))
			}
			x.taken[x.key(r.doc)] = r.id
		}
		in.indexes = append(in.indexes, x)
	}
	return bson.D{{Key: "numIndexesBefore", Value: int32(before + 1)}, {Key: "numIndexesAfter", Value: int32(len(in.indexes) + 1)}}
}

func listIndexes(c *call) bson.D {
	docs := []bson.Raw{document(bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "name", Value: "_id_"}})}
	for _, x := range c.collection().indexes {
		d := bson.D{{Key: "v", Value: 2}, {Key: "key", Value: x.keys}, {Key: "name", Value: x.name}}
		if x.unique {
			d = append(d, bson.E{Key: "unique", Value: true})
		}
		docs = append(docs, document(d))
	}
	return c.batch("firstBatch", c.name, docs, 0, false)
}

func drop(c *call) bson.D {
	delete(c.collections, c.name)
	return nil
}

func dropDatabase(c *call) bson.D {
	database, _ := c.args.Lookup("$db").StringValueOK()
	for name := range c.collections {
		if len(name) > len(database) && name[:len(database)+1] == database+"." {
			delete(c.collections, name)
		}
	}
	return nil
}
