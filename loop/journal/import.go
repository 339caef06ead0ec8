package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Import reads an export into a data directory, which it creates if necessary and which must be
// empty. It imports all lines or, on an error, none; an error names its line. No server may use the
// directory. progress, which may be nil, receives the number of lines read; its total is 0, for
// unknown.
func Import(dir string, r io.Reader, progress func(done, total int64)) error {
	return importFrom(vfs.Default, dir, r, progress)
}

func importFrom(f vfs.FS, dir string, r io.Reader, progress func(done, total int64)) error {
	d, err := lockDataDir(f, dir, true)
	if err != nil {
		return err
	}
	return errors.Join(d.importFrom(r, progress), d.close())
}

// importFrom reads an export into an empty data directory. The directory stays empty after an error.
func (d *dataDir) importFrom(from io.Reader, progress func(done, total int64)) error {
	if err := d.refuseNode(); err != nil {
		return err
	}
	if err := d.ensureStore(); err != nil {
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
	var r Report
	if err := d.count(s, &r); err != nil {
		return err
	}
	if r.Jobs+r.Documents+r.Settings > 0 {
		return fmt.Errorf("the data directory %q is not empty (records: %d, settings: %d); an import needs an empty one", d.root, r.Jobs+r.Documents, r.Settings)
	}
	var last meta
	if err := d.read(s, func(db pebble.Reader) (err error) { last, err = readMeta(db); return err }); err != nil {
		return err
	}
	err = buildStore(d.fs, d.path(newName), func(db *pebble.DB) error {
		in := importer{store: storeWriter{db: db, batch: db.NewBatch()}, meta: last, progress: progress}
		if err := in.run(from); err != nil {
			return err
		}
		twice, err := duplicatesDamage(db, in.meta.records, func(*Record) {})
		if err == nil && len(twice) > 0 {
			err = fmt.Errorf("a server could not start with this import: %s", twice[0].What)
		}
		return err
	})
	if err != nil {
		return errors.Join(err, d.fs.RemoveAll(d.path(newName)))
	}
	return d.replace()
}

// importer builds a store from lines.
type importer struct {
	store    storeWriter
	meta     meta
	version  int             // of the export
	keys     map[string]bool // keys of the settings and documents imported so far
	progress func(done, total int64)
	value    []byte
}

// run imports all lines. Its errors name the line.
func (in *importer) run(from io.Reader) error {
	in.keys = map[string]bool{}
	r := bufio.NewReaderSize(from, 256<<10)
	for n := int64(1); ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("cannot read the import: %w", err)
		}
		if err != nil && len(line) == 0 {
			if n == 1 {
				return errors.New("line 1: missing; an import begins with {\"treadle_journal\":2}")
			}
			break
		}
		if err := in.line(n, bytes.TrimSpace(line)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if n%progressEvery == 0 && in.progress != nil {
			in.progress(n, 0)
		}
	}
	in.meta.previous = in.meta.group
	in.meta.prevSynced = true
	return in.store.finish(in.meta)
}

// The allowed members of each kind of line.
var (
	headNames     = []string{"treadle_journal"}
	settingNames  = withBase64([]string{"kind"}, "key", "value")
	documentNames = withBase64([]string{"kind", "state"}, "project", "name", "text")
	jobNames      = []string{"kind", "seq", "space", "sched_at", "due", "priority", "count", "timeout", "revision"}
	recordNames   = withBase64(append(jobNames[:len(jobNames):len(jobNames)], "log", "after", "task", "failed_at", "tries", "attempts",
		"done_at", "lease", "counts"), "queue", "name", "holder", "workload", "result")
	recordNamesV1 = withBase64(jobNames[:len(jobNames):len(jobNames)], "queue", "name", "holder", "extra", "workload")
	eventNames    = []string{"stage", "micros"}
)

func withBase64(names []string, texts ...string) []string {
	for _, t := range texts {
		names = append(names, t, t+"_base64")
	}
	return names
}

// importLine holds the members of any line. checkMembers has refused those that the line's kind
// does not allow.
type importLine struct {
	TreadleJournal int `json:"treadle_journal"`
	Kind           string

	Key         *string
	KeyBase64   []byte `json:"key_base64"`
	Value       *string
	ValueBase64 []byte `json:"value_base64"`

	Seq            uint64
	Space          uint8
	Queue          *string
	QueueBase64    []byte `json:"queue_base64"`
	Name           *string
	NameBase64     []byte `json:"name_base64"`
	Holder         *string
	HolderBase64   []byte `json:"holder_base64"`
	Extra          *string
	ExtraBase64    []byte `json:"extra_base64"`
	Workload       *string
	WorkloadBase64 []byte `json:"workload_base64"`
	SchedAt        int64  `json:"sched_at"`
	Due            int64
	Priority       int64
	Count          int32
	Timeout        int32
	Revision       int64
	Log            []json.RawMessage
	After          []uint64
	Task           uint64
	FailedAt       int64 `json:"failed_at"`
	Tries          uint64
	Attempts       []json.RawMessage
	DoneAt         int64 `json:"done_at"`
	Result         *string
	ResultBase64   []byte `json:"result_base64"`
	Lease          json.RawMessage
	Counts         json.RawMessage

	Project       *string
	ProjectBase64 []byte `json:"project_base64"`
	State         json.RawMessage
	Text          *string
	TextBase64    []byte `json:"text_base64"`
}

// line imports one line of an export, which has no space around it. Line 1 is the head; an empty line after it is
// ignored. Each other line is a setting, a record or a document, and may have the members of its kind alone.
func (in *importer) line(n int64, b []byte) error {
	if len(b) == 0 && n > 1 {
		return nil
	}
	if !utf8.Valid(b) {
		return errors.New("not UTF-8")
	}
	var l importLine
	if err := json.Unmarshal(b, &l); err != nil {
		return err
	}
	names, err := memberNames(b)
	if err != nil {
		return err
	}
	switch {
	case n == 1:
		if err := checkMembers(names, headNames); err != nil {
			return fmt.Errorf("%w; an import begins with {\"treadle_journal\":2}", err)
		}
		if in.version = l.TreadleJournal; in.version < 1 || in.version > exportVersion {
			return fmt.Errorf("an export of version %d; this program knows versions 1 to %d", in.version, exportVersion)
		}
		return nil
	case l.Kind == "setting":
		if err := checkMembers(names, settingNames); err != nil {
			return err
		}
		return in.setting(&l)
	case in.version == 1 && l.Kind == "job":
		if err := checkMembers(names, recordNamesV1); err != nil {
			return err
		}
		return in.record(KindJob, &l)
	}
	kind := Kind(slices.Index(kindNames[:], l.Kind)) // an unknown kind becomes the highest number
	switch {
	case in.version == 1 || kind >= kinds:
		return fmt.Errorf("a line of an unknown kind, %q", l.Kind)
	case kind >= KindProject && kind <= KindProgress:
		if err := checkMembers(names, documentNames); err != nil {
			return err
		}
		return in.document(kind, &l)
	default:
		if err := checkMembers(names, recordNames); err != nil {
			return err
		}
		return in.record(kind, &l)
	}
}

// checkMembers refuses unknown and repeated members.
func checkMembers(names, allowed []string) error {
	for i, name := range names {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("an unknown member %q", name)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("the member %q comes twice", name)
		}
	}
	return nil
}

// textOrBase64 returns a member that is given as text or in base64.
func textOrBase64(name string, text *string, coded []byte) ([]byte, error) {
	if text != nil && coded != nil {
		return nil, fmt.Errorf("both members %q and \"%s_base64\"", name, name)
	}
	if text != nil {
		return []byte(*text), nil
	}
	return coded, nil
}

// setting imports a setting. In version 1 of the export some settings are documents.
func (in *importer) setting(l *importLine) error {
	key, err := textOrBase64("key", l.Key, l.KeyBase64)
	if err != nil {
		return err
	}
	value, err := textOrBase64("value", l.Value, l.ValueBase64)
	if err != nil {
		return err
	}
	if d, ok := legacyDocument(key, value); ok && in.version == 1 {
		return in.setOnce(d.key(nil), d.Value, "setting", key)
	}
	return in.setOnce(settingKey(string(key)), value, "setting", key)
}

// document imports one document.
func (in *importer) document(kind Kind, l *importLine) error {
	d := Document{Kind: kind}
	var errs [3]error
	d.Project, errs[0] = textOrBase64("project", l.Project, l.ProjectBase64)
	d.Name, errs[1] = textOrBase64("name", l.Name, l.NameBase64)
	d.Value, errs[2] = textOrBase64("text", l.Text, l.TextBase64)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if len(l.State) > 0 && string(l.State) != "null" {
		switch {
		case d.Value != nil:
			return errors.New(`both members "state" and "text"`)
		case l.State[0] != '{':
			return errors.New("a state that is not a JSON object")
		}
		d.Value = l.State
	}
	return in.setOnce(d.key(nil), d.Value, l.Kind, d.Project, d.Name)
}

// setOnce stores a value and refuses a repeated key.
func (in *importer) setOnce(key, value []byte, what string, names ...[]byte) error {
	if in.keys[string(key)] {
		return fmt.Errorf("the %s %q comes twice", what, bytes.Join(names, []byte(" ")))
	}
	in.keys[string(key)] = true
	return in.store.set(key, value)
}

// event parses an entry of a task's log.
func event(line []byte) (e Event, err error) {
	names, err := memberNames(line)
	if err == nil {
		err = firstError(checkMembers(names, eventNames), json.Unmarshal(line, &e))
	}
	return e, err
}

// record imports one record. A record without a seq gets the next one; a given seq must be higher
// than all before it.
func (in *importer) record(kind Kind, l *importLine) error {
	r := Record{
		Kind: kind, Seq: l.Seq, Space: l.Space, SchedAt: l.SchedAt, Due: l.Due, Priority: l.Priority,
		Count: l.Count, Timeout: l.Timeout, Revision: l.Revision, After: l.After, Task: l.Task,
		Attempts: Attempts{FailedAt: l.FailedAt, Tries: l.Tries}, Finished: Finished{DoneAt: l.DoneAt},
	}
	var errs [8]error
	r.Queue, errs[0] = textOrBase64("queue", l.Queue, l.QueueBase64)
	r.Name, errs[1] = textOrBase64("name", l.Name, l.NameBase64)
	r.Holder, errs[2] = textOrBase64("holder", l.Holder, l.HolderBase64)
	_, errs[3] = textOrBase64("extra", l.Extra, l.ExtraBase64)
	r.Workload, errs[4] = textOrBase64("workload", l.Workload, l.WorkloadBase64)
	r.Result, errs[5] = textOrBase64("result", l.Result, l.ResultBase64)
	r.Lease, errs[6] = lease(l.Lease)
	r.Counts, errs[7] = counts(l.Counts)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for _, line := range l.Log {
		e, err := event(line)
		if err != nil {
			return err
		}
		r.Log = append(r.Log, e)
	}
	for _, line := range l.Attempts {
		a, err := attempt(line)
		if err != nil {
			return err
		}
		r.History = append(r.History, a)
	}
	if r.DoneAt == 0 && r.Result != nil {
		return errors.New("a result without done_at")
	}
	if r.hasLease() && (r.Kind != KindJob || r.DoneAt != 0 || r.FailedAt != 0) {
		return errors.New("a lease of what is not reserved")
	}
	if r.Kind == KindJob && r.Space == 0 {
		return errors.New("a job without a space")
	}
	if in.version == 1 {
		if err := r.upgradeV1(); err != nil {
			return err
		}
	}
	if r.Seq == 0 {
		r.Seq = in.meta.maxSeq + 1
	}
	if r.Seq <= in.meta.maxSeq {
		return fmt.Errorf("the seq %d is not above the last, %d", r.Seq, in.meta.maxSeq)
	}
	in.meta.maxSeq = r.Seq
	in.meta.records++
	in.value = appendRecord(in.value[:0], &r)
	return in.store.set(recordKey(r.Seq), in.value)
}
