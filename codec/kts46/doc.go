// Package kts46 translates between bytes and the calls of the kts46 scheduler: XML-RPC (the SchedulerAPI document,
// January 2011) and the JSON-RPC 1.0 that replaced it a month later.
//
// # Values
//
// XML-RPC's values are nil, string, int64, bool, float64, DateTime, []any and Struct. base64 is read as the string of
// its bytes. The encoders write the same bytes as Python 2's xmlrpclib. A document type definition is refused, so that
// an entity is never longer than a character.
package kts46

import "errors"

// Bounds of one call. Real calls have two levels and fewer than ten values. The largest has a job's definition, a few
// KiB of YAML.
const (
	// MaxRequest is the longest call, in bytes, that a server should read.
	MaxRequest = 1 << 20
	maxDepth   = 16
	maxValues  = 16 << 10
)

// errLimit reports that a call nests too deep or has too many values.
var errLimit = errors.New("the call nests too deep or has too many values")

// Member is one member of a Struct.
type Member struct {
	Name  string
	Value any
}

// Struct is XML-RPC's struct, in the order of the wire.
type Struct []Member

// Get returns the member of a name, nil if no member has it.
func (s Struct) Get(name string) any {
	for _, m := range s {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// Fault is XML-RPC's error.
type Fault struct {
	Code int64
	Text string
}

func (f *Fault) Error() string { return f.Text }
