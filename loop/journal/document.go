package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Document is a named record of a protocol: a kts46 project, or data of a job in a project.
type Document struct {
	Kind    Kind // from KindProject to KindProgress
	Project []byte
	Name    []byte // name of the job; empty for a project
	// Value is the protocol's data: any text for a definition, a JSON object for the other kinds.
	Value []byte
}

// key appends the document's key in the store: the kind, the project's name with its length, and
// the job's name. Documents are therefore sorted by kind.
func (d *Document) key(dst []byte) []byte {
	dst = append(dst, keyDocument, byte(d.Kind))
	return append(appendBytes(dst, d.Project), d.Name...)
}

// parseDocument decodes a stored document. Its bytes are views of key and value.
func parseDocument(key, value []byte) (d Document, err error) {
	if len(key) < 3 {
		return d, fmt.Errorf("a document's key has %d bytes", len(key))
	}
	d = Document{Kind: Kind(key[1]), Value: value}
	if d.Kind < KindProject || d.Kind > KindProgress {
		return d, fmt.Errorf("a document of an unknown kind, %d", d.Kind)
	}
	l, n := binary.Uvarint(key[2:])
	if rest := key[2+max(n, 0):]; n > 0 && l <= uint64(len(rest)) {
		d.Project, d.Name = rest[:l:l], rest[l:]
		return d, nil
	}
	return d, errors.New("a document's key is truncated or malformed")
}

// PutDocument appends a new or changed document. SettingsGroup covers the change.
func (j *Journal) PutDocument(d *Document) {
	j.settingsBuffer().raw(opSet, d.key(nil), d.Value)
	j.touch()
}

// DeleteDocument appends the deletion of a document. SettingsGroup covers the change.
func (j *Journal) DeleteDocument(d *Document) {
	j.settingsBuffer().raw(opDelete, d.key(nil), nil)
	j.touch()
}
