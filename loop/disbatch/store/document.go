package store

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
)

// Queue is a document of the collection queues. A field has the same name in both dialects here.
type Queue struct {
	ID      primitive.ObjectID
	Name    string
	Plugin  string   // constructor in 2016
	Limit   int      // in 2016 maxthreads: tasks at one node; in 2018 threads: tasks at all nodes together
	Sort    string   // fifo, lifo or default
	Schema  Schema   // dialect of the document
	Pin     []string // nodes_pin; unless empty, only these nodes serve the queue
	Ignore  []string // nodes_ignore; these nodes do not serve the queue
	Problem string   // fault of the document; empty: none

	Todo, Total int64 // count_todo and count_total of 2016; -1: unknown
	Raw         bson.Raw
}

// lifo reports whether the newest task of the queue is first. The oldest is first otherwise.
func (q *Queue) lifo() bool { return q.Sort == sortLIFO }

// Task is a document of the collection tasks.
type Task struct {
	ID     primitive.ObjectID
	Queue  primitive.ObjectID
	Node   string // empty: not claimed
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
	Limit     int    // maxthreads; NoLimit if null or missing
	Problem   string // fault of the document; empty: none
	Raw       bson.Raw
}

// NoLimit is the limit of a node without maxthreads.
const NoLimit = -1

// Status codes of tasks. A plugin may return any positive integer. The original also knows -3 terminated, -4 blocked
// and -5 cancelled, which Treadle does not write.
const (
	StatusOrphaned  = -6
	StatusQueued    = -2
	StatusClaimed   = -1
	StatusRunning   = 0
	StatusSucceeded = 1
	StatusFailed    = 2
)

// Values of a queue's field sort: the order by id in which nodes claim its tasks.
const (
	sortFIFO    = "fifo"
	sortLIFO    = "lifo"
	sortDefault = "default"
)

// isSort reports whether a text is a value of sort.
func isSort(text string) bool { return text == sortFIFO || text == sortLIFO || text == sortDefault }

// Schema is the dialect of a queue and its tasks.
type Schema int

// The dialects are those of the design text of April 2016 and of release 4.000 of 2018.
const (
	Schema2016 Schema = 2016
	Schema2018 Schema = 2018
)

// PluginField returns the name of the field with the plugin of a queue.
func (s Schema) PluginField() string { return s.pick("constructor", "plugin") }

// LimitField returns the name of the field with the limit of a queue.
func (s Schema) LimitField() string { return s.pick("maxthreads", "threads") }

// paramsField returns the name of the field with the payload of a task.
func (s Schema) paramsField() string { return s.pick("parameters", "params") }

// Unclaimed returns the value of the field node of a task that no node has claimed.
func (s Schema) Unclaimed() any {
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

// MaxLimit bounds the limits of queues and nodes. It exceeds the number of processes that a host can run.
const MaxLimit = 1 << 20

// DecodeQueue reads a queue. It reports a fault of the document in Problem with a limit of 0, so that no task of the
// queue starts.
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
	case !config.IsPluginName(q.Plugin):
		q.Problem = fmt.Sprintf("%s is %q, no name of a plugin", q.Schema.PluginField(), q.Plugin)
	case !Missing(limit) && (!ok || n < 0 || n > MaxLimit):
		q.Problem = fmt.Sprintf("%s is %s: it must be a number from 0 to %d", q.Schema.LimitField(), limit, MaxLimit)
	case q.Sort != "" && !isSort(q.Sort):
		q.Problem = fmt.Sprintf("sort is %q: say fifo, lifo or default", q.Sort)
	default:
		q.Limit = int(n)
	}
	return q
}

// count reads a counter. It returns -1, unknown, for a counter that is no number: $inc cannot add to a text.
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

// Params returns the payload of the task in either dialect.
func (t *Task) Params() bson.RawValue {
	if v := t.Raw.Lookup("params"); !Missing(v) {
		return v
	}
	return t.Raw.Lookup("parameters")
}

// DecodeNode reads a node. It reports a wrong limit in Problem with a limit of 0, so that the node starts no task.
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
