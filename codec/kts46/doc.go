// Package kts46 reads and writes what the scheduler of the kts46 project and its clients
// say: XML-RPC (the SchedulerAPI document, January 2011) and the JSON-RPC 1.0 that
// replaced it a month later. It knows the bytes, not what the calls do.
//
// # Values
//
// XML-RPC's values are nil, string, int64, bool, float64, DateTime, []any and Struct; base64
// is read as the string of its bytes. What is written is laid out as Python 2's xmlrpclib does, byte for byte. A document type
// definition is refused, so an entity can't stand for more than a character.
package kts46

import "errors"

// Bounds of one call. Real ones nest two deep and have less than ten values; the largest
// carries a job's definition, a few KiB of YAML.
const (
	// MaxRequest is the longest call, in bytes, that a server should read.
	MaxRequest = 1 << 20
	maxDepth   = 16
	maxValues  = 16 << 10
)

// ErrLimit says that a call nests too deep or has too many values.
var ErrLimit = errors.New("the call nests too deep or has too many values")

// Member is one member of a Struct.
type Member struct {
	Name  string
	Value any
}

// Struct is XML-RPC's struct, in the order of the wire.
type Struct []Member

// Get returns the member of a name, nil when there is none.
func (s Struct) Get(name string) any {
	for _, m := range s {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// Fault is XML-RPC's way to say no.
type Fault struct {
	Code int64
	Text string
}

func (f *Fault) Error() string { return f.Text }
