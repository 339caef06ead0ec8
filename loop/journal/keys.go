package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A key in the store begins with one of these bytes.
const (
	keyRecord   = 'j' // a record; followed by its Seq in 8 bytes, big-endian
	keyMeta     = 'm' // the last group's meta; the whole key
	keySetting  = 's' // a setting; followed by its key
	keyDocument = 'p' // a document; followed by the bytes that Document.key appends
	keyApplied  = 'r' // of a cluster's node: the Position that the store has; the whole key
	keyMembers  = 'n' // of a cluster's node: the nodes at that Position; the whole key

	recordKeySize = 9
)

func recordKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keyRecord}, UpperBound: []byte{keyRecord + 1}}
}

func settingKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keySetting}, UpperBound: []byte{keySetting + 1}}
}

func documentKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keyDocument}, UpperBound: []byte{keyDocument + 1}}
}

func settingKey(key string) []byte { return append([]byte{keySetting}, key...) }

// recordKey returns the key of the record with this Seq.
func recordKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{keyRecord}, seq)
}

func recordSeq(key []byte) (uint64, error) {
	if len(key) != recordKeySize {
		return 0, fmt.Errorf("a job's key has %d bytes", len(key))
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}
