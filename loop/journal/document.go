package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Document is a durable thing of a protocol that is known by its name: a project of kts46, or
// what is kept of a job in one.
type Document struct {
	Kind    Kind // from KindProject on
	Project []byte
	Name    []byte // of the job; a project has none
	// Value is what the protocol keeps: of a definition any text, of the others a JSON object.
	Value []byte
}

// key appends the document's key in the store: the kind, the project's name with its length, the
// other name. So those of one kind stand together, in the order of the kinds.
func (d *Document) key(dst []byte) []byte {
	dst = append(dst, keyDocument, byte(d.Kind))
	return append(appendBytes(dst, d.Project), d.Name...)
}

// parseDocument reads a stored document. Its bytes are views.
func parseDocument(key, value []byte) (d Document, err error) {
	if len(key) < 3 {
		return d, fmt.Errorf("a document's key has %d bytes", len(key))
	}
	d = Document{Kind: Kind(key[1]), Value: value}
	if d.Kind < KindProject || d.Kind >= kinds {
		return d, fmt.Errorf("a document of an unknown kind, %d", d.Kind)
	}
	l, n := binary.Uvarint(key[2:])
	if rest := key[2+max(n, 0):]; n > 0 && l <= uint64(len(rest)) {
		d.Project, d.Name = rest[:l:l], rest[l:]
		return d, nil
	}
	return d, errors.New("a document's key is cut short or garbled")
}

// PutDocument appends a document that is new or has changed; SettingsGroup covers it.
func (j *Journal) PutDocument(d *Document) {
	j.settings().raw(opSet, d.key(nil), d.Value)
	j.touch()
}

// DeleteDocument appends a document's end; SettingsGroup covers it.
func (j *Journal) DeleteDocument(d *Document) {
	j.settings().raw(opDelete, d.key(nil), nil)
	j.touch()
}
