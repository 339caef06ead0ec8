package journal

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// exportVersion is the version in an export's first line. Import reads the older ones too.
const exportVersion = 2

// Export writes the contents of the data directory as JSON lines, in the form that the package
// comment describes: settings, documents, then records in the order of their Seq. No server may use
// the directory. progress, which may be nil, receives the number of records written.
func Export(dir string, w io.Writer, progress func(done, total int64)) error {
	return export(vfs.Default, dir, w, progress)
}

func export(f vfs.FS, dir string, w io.Writer, progress func(done, total int64)) error {
	d, err := openReadOnly(f, dir)
	if err != nil {
		return err
	}
	return errors.Join(d.export(w, progress), d.close())
}

// export writes the records of the directory to w as lines of JSON. It verifies the store first, and reports damage
// instead of writing a part.
func (d *dataDir) export(w io.Writer, progress func(done, total int64)) error {
	if err := d.needStore(exists(d.fs, d.store())); err != nil {
		return err
	}
	format, err := d.readFormat()
	if err != nil {
		return err
	}
	s, err := d.verify(format)
	if err != nil {
		return err
	}
	err = d.read(s, func(db pebble.Reader) error { return exportStore(db, format, w, progress) })
	var own callbackError
	if errors.As(err, &own) {
		return fmt.Errorf("cannot write the export: %w", own.error)
	}
	if err != nil {
		return d.damageError(err)
	}
	return nil
}

// exportStore writes the head, the settings, the documents and the jobs of a store. format is the directory's format:
// in an older one, documents are stored as settings.
func exportStore(db pebble.Reader, format int, to io.Writer, progress func(done, total int64)) error {
	m, err := readMeta(db)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(to, 256<<10)
	if _, err := fmt.Fprintf(w, "{\"treadle_journal\":%d}\n", exportVersion); err != nil {
		return callbackErr(err)
	}
	var l jsonLine
	err = scan(db, settingKeys(), func(key, value []byte) error {
		if d, ok := legacyDocument(key[1:], value); ok && format < presentFormat {
			l.document(&d)
			return callbackErr(l.end(w))
		}
		l.begin("setting")
		l.bytes("key", key[1:])
		l.bytes("value", value)
		return callbackErr(l.end(w))
	})
	if err != nil {
		return err
	}
	err = eachDocument(db, func(d *Document) error {
		l.document(d)
		return callbackErr(l.end(w))
	})
	if err != nil {
		return err
	}
	var done int64
	var r Record
	err = scan(db, recordKeys(), func(key, value []byte) error {
		if err := parseStoredRecord(key, value, &r); err != nil {
			return decodeError{err}
		}
		l.record(&r)
		if done++; done%progressEvery == 0 && progress != nil {
			progress(done, max(done, m.records))
		}
		return callbackErr(l.end(w))
	})
	if err == nil && progress != nil {
		progress(done, done)
	}
	if err != nil {
		return err
	}
	return callbackErr(w.Flush())
}

// jsonLine builds one line.
type jsonLine struct{ b []byte }

func (l *jsonLine) begin(kind string) {
	l.b = append(append(append(l.b[:0], `{"kind":"`...), kind...), '"')
}

func (l *jsonLine) end(w io.Writer) error {
	l.b = append(l.b, '}', '\n')
	_, err := w.Write(l.b)
	return err
}

func (l *jsonLine) name(name string) {
	l.b = append(append(append(l.b, ',', '"'), name...), '"', ':')
}

func (l *jsonLine) number(name string, v int64) {
	if v != 0 {
		l.name(name)
		l.b = strconv.AppendInt(l.b, v, 10)
	}
}

func (l *jsonLine) document(d *Document) {
	l.begin(d.Kind.String())
	l.bytes("project", d.Project)
	l.bytes("name", d.Name)
	if d.Kind != KindDefinition && isState(d.Value) {
		l.name("state")
		l.b = append(l.b, d.Value...)
	} else {
		l.bytes("text", d.Value)
	}
}

// isState reports whether a document's value is a JSON object that survives a line unchanged.
func isState(v []byte) bool {
	if len(v) == 0 || v[0] != '{' || bytes.ContainsAny(v, "\r\n") || !utf8.Valid(v) || !json.Valid(v) {
		return false
	}
	_, err := memberNames(v)
	return err == nil
}

// record writes a job or task as the members that are not zero. The names of the members are those of importLine.
func (l *jsonLine) record(r *Record) {
	l.begin(r.Kind.String())
	l.name("seq")
	l.b = strconv.AppendUint(l.b, r.Seq, 10)
	l.number("space", int64(r.Space))
	l.bytes("queue", r.Queue)
	l.bytes("name", r.Name)
	l.number("sched_at", r.SchedAt)
	l.number("due", r.Due)
	l.number("priority", r.Priority)
	l.number("count", int64(r.Count))
	l.number("timeout", int64(r.Timeout))
	l.bytes("holder", r.Holder)
	l.number("revision", r.Revision)
	l.graph(r)
	l.attempts(&r.Attempts)
	l.finished(&r.Finished)
	l.lease(&r.Lease)
	l.counts(&r.Counts)
	l.bytes("workload", r.Workload)
}

// graph writes a record's log and dependencies.
func (l *jsonLine) graph(r *Record) {
	comma := func(i int) {
		if i > 0 {
			l.b = append(l.b, ',')
		}
	}
	if len(r.Log) > 0 {
		l.name("log")
		l.b = append(l.b, '[')
		for i, e := range r.Log {
			comma(i)
			l.b = fmt.Appendf(l.b, `{"stage":%d,"micros":%d}`, e.Stage, e.Micros)
		}
		l.b = append(l.b, ']')
	}
	if len(r.After) > 0 {
		l.name("after")
		l.b = append(l.b, '[')
		for i, seq := range r.After {
			comma(i)
			l.b = strconv.AppendUint(l.b, seq, 10)
		}
		l.b = append(l.b, ']')
	}
	if r.Task != 0 {
		l.name("task")
		l.b = strconv.AppendUint(l.b, r.Task, 10)
	}
}

// bytes writes UTF-8 as a string and other bytes in base64.
func (l *jsonLine) bytes(name string, v []byte) {
	switch {
	case len(v) == 0:
	case utf8.Valid(v):
		l.name(name)
		l.text(v)
	default:
		l.name(name + "_base64")
		l.b = append(l.b, '"')
		l.b = base64.StdEncoding.AppendEncode(l.b, v)
		l.b = append(l.b, '"')
	}
}

// text writes UTF-8 text as a JSON string. It escapes only what JSON demands, so that the text stays readable.
func (l *jsonLine) text(v []byte) {
	const hex = "0123456789abcdef"
	l.b = append(l.b, '"')
	for _, c := range v {
		switch {
		case c == '"' || c == '\\':
			l.b = append(l.b, '\\', c)
		case c < ' ' || c == 0x7f:
			l.b = append(l.b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			l.b = append(l.b, c)
		}
	}
	l.b = append(l.b, '"')
}
