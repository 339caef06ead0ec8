package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A key in the store begins with one of these bytes.
const (
	keyJob      = 'j' // a record; followed by its Seq in 8 bytes, big-endian
	keyMeta     = 'm' // the last group's meta; the whole key
	keySetting  = 's' // a setting; followed by its key
	keyDocument = 'p' // a document; followed by the bytes that Document.key appends
	keyApplied  = 'r' // of a cluster's node: the Position that the store has; the whole key
	keyMembers  = 'n' // of a cluster's node: the nodes at that Position; the whole key

	jobKeySize = 9
)

func jobKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keyJob}, UpperBound: []byte{keyJob + 1}}
}

func settingKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keySetting}, UpperBound: []byte{keySetting + 1}}
}

func documentKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keyDocument}, UpperBound: []byte{keyDocument + 1}}
}

func settingKey(key string) []byte { return append([]byte{keySetting}, key...) }

// jobKey returns the key of the job with this Seq.
func jobKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{keyJob}, seq)
}

func jobSeq(key []byte) (uint64, error) {
	if len(key) != jobKeySize {
		return 0, fmt.Errorf("a job's key has %d bytes", len(key))
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}
