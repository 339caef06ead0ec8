package disbatch

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// Queue is a document of the collection queues. Fields of the two dialects have one name
// here.
type Queue struct {
	ID      primitive.ObjectID
	Name    string
	Plugin  string   // constructor in 2016
	Limit   int      // maxthreads in 2016, of tasks at one node; threads in 2018, of tasks at all nodes
	Sort    string   // fifo, lifo or default
	Schema  Schema   // by its field constructor or plugin
	Pin     []string // nodes_pin: if any, only these nodes serve the queue
	Ignore  []string // nodes_ignore: these nodes do not
	Problem string   // what is wrong with the document, if something is

	Todo, Total int64 // count_todo and count_total of 2016, -1 if they need to be counted
	Raw         bson.Raw
}

// Task is a document of the collection tasks.
type Task struct {
	ID     primitive.ObjectID
	Queue  primitive.ObjectID
	Node   string // empty if nobody claimed it
	Status int
	CTime  time.Time
	MTime  time.Time
	Raw    bson.Raw
}

// Node is a document of the collection nodes.
type Node struct {
	ID        primitive.ObjectID
	Name      string
	Timestamp time.Time
	Limit     int // maxthreads; NoLimit if it is null
	Problem   string
	Raw       bson.Raw
}

// NoLimit is the limit of a node without maxthreads.
const NoLimit = -1

// Status codes of tasks. A plugin may return any positive integer; the originals have -3 terminated, -4 blocked and
// -5 cancelled, too, which nothing here writes.
const (
	StatusOrphaned  = -6
	StatusQueued    = -2
	StatusClaimed   = -1
	StatusRunning   = 0
	StatusSucceeded = 1
	StatusFailed    = 2
)

// Orders in which a queue's tasks are claimed, by their ids.
const (
	SortFIFO    = "fifo"
	SortLIFO    = "lifo"
	SortDefault = "default"
)

// PluginField is the name of a queue's field with its plugin.
func (s Schema) PluginField() string { return s.pick("constructor", "plugin") }

// LimitField is the name of a queue's field with its limit.
func (s Schema) LimitField() string { return s.pick("maxthreads", "threads") }

// ParamsField is the name of a task's field with its payload.
func (s Schema) ParamsField() string { return s.pick("parameters", "params") }

// Nobody is the node of a task that nobody claimed.
func (s Schema) Nobody() any {
	if s == Schema2016 {
		return int32(-1)
	}
	return nil
}

func (s Schema) pick(of2016, of2018 string) string {
	if s == Schema2016 {
		return of2016
	}
	return of2018
}

// MaxLimit bounds the limits of queues and nodes: more tasks at once than processes fit.
const MaxLimit = 1 << 20

// DecodeQueue reads a queue. What is wrong in it is in Problem, and then its limit is 0, so
// that nothing runs.
func DecodeQueue(raw bson.Raw) Queue {
	q := Queue{
		Name: Text(raw.Lookup("name")), Sort: Text(raw.Lookup("sort")), Schema: Schema2018,
		Pin: Texts(raw.Lookup("nodes_pin")), Ignore: Texts(raw.Lookup("nodes_ignore")),
		Todo: count(raw.Lookup("count_todo")), Total: count(raw.Lookup("count_total")), Raw: raw,
	}
	q.ID, _ = raw.Lookup("_id").ObjectIDOK()
	if Missing(raw.Lookup("plugin")) && !Missing(raw.Lookup("constructor")) {
		q.Schema = Schema2016
	}
	q.Plugin = Text(raw.Lookup(q.Schema.PluginField()))
	limit := raw.Lookup(q.Schema.LimitField())
	n, ok := Integer(limit)
	switch {
	case q.ID.IsZero():
		q.Problem = "its _id is no ObjectId"
	case !pluginName.MatchString(q.Plugin):
		q.Problem = fmt.Sprintf("%s is %q, no name of a plugin", q.Schema.PluginField(), q.Plugin)
	case !Missing(limit) && (!ok || n < 0 || n > MaxLimit):
		q.Problem = fmt.Sprintf("%s is %s: it must be a number from 0 to %d", q.Schema.LimitField(), limit, MaxLimit)
	case q.Sort != "" && q.Sort != SortFIFO && q.Sort != SortLIFO && q.Sort != SortDefault:
		q.Problem = fmt.Sprintf("sort is %q: say fifo, lifo or default", q.Sort)
	default:
		q.Limit = int(n)
	}
	return q
}

// count reads a counter; -1 says that it has to be counted, as one that is text, which
// the database cannot add to.
func count(v bson.RawValue) int64 {
	n, ok := Integer(v)
	if !ok || n < 0 || v.Type == bson.TypeString {
		return -1
	}
	return n
}

// DecodeTask reads a task.
func DecodeTask(raw bson.Raw) Task {
	t := Task{Node: Text(raw.Lookup("node")), CTime: Instant(raw.Lookup("ctime")), MTime: Instant(raw.Lookup("mtime")), Raw: raw}
	t.ID, _ = raw.Lookup("_id").ObjectIDOK()
	t.Queue, _ = raw.Lookup("queue").ObjectIDOK()
	status, _ := Integer(raw.Lookup("status"))
	t.Status = int(status)
	return t
}

// Params is the payload of the task, in either dialect.
func (t *Task) Params() bson.RawValue {
	if v := t.Raw.Lookup("params"); !Missing(v) {
		return v
	}
	return t.Raw.Lookup("parameters")
}

// DecodeNode reads a node. One whose limit is wrong starts nothing.
func DecodeNode(raw bson.Raw) Node {
	n := Node{Name: Text(raw.Lookup("node")), Timestamp: Instant(raw.Lookup("timestamp")), Limit: NoLimit, Raw: raw}
	n.ID, _ = raw.Lookup("_id").ObjectIDOK()
	limit := raw.Lookup("maxthreads")
	if Missing(limit) {
		return n
	}
	switch v, ok := Integer(limit); {
	case !ok || v < 0 || v > MaxLimit:
		n.Limit, n.Problem = 0, fmt.Sprintf("maxthreads is %s: it must be a number from 0 to %d, or null", limit, MaxLimit)
	default:
		n.Limit = int(v)
	}
	return n
}
