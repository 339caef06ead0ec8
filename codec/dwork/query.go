package dwork

// Query is one decoded message. Its fields are views into the payload. Decode and DecodeReply set every field, so that
// a Query is reused.
type Query struct {
	Type     Type
	Count    int    // how many tasks there are
	Name     []byte // nil if absent; an empty one is not nil
	Location []byte // nil if absent; an empty one is not nil
	N        int32  // 0 if absent
	HasN     bool

	payload []byte
}

// Tasks yields the tasks in their order, for `for task := range q.Tasks`.
func (q *Query) Tasks(yield func(Task) bool) {
	f := fields{rest: q.payload}
	for f.next() {
		if f.tag != queryTask {
			continue
		}
		if !yield(parseTask(f.bytes)) {
			return
		}
	}
}

// Task is one task of a message; its fields are views into the payload.
type Task struct {
	Name   []byte
	Origin []byte

	message []byte
}

// Pred yields the tasks that this one waits for.
func (t Task) Pred(yield func(Dep) bool) { t.deps(taskPred, yield) }

// Succ yields the tasks that wait for this one.
func (t Task) Succ(yield func(Dep) bool) { t.deps(taskSucc, yield) }

// deps calls yield with the dependencies of a field, until yield returns false.
func (t Task) deps(tag uint64, yield func(Dep) bool) {
	f := fields{rest: t.message}
	for f.next() {
		if f.tag != tag {
			continue
		}
		dep, _, _ := parseDep(f.bytes)
		if !yield(dep) {
			return
		}
	}
}

// Log yields the entries of the task's log, oldest first.
func (t Task) Log(yield func(LogEntry) bool) {
	f := fields{rest: t.message}
	for f.next() {
		if f.tag != taskLog {
			continue
		}
		entry, _, _ := parseLog(f.bytes)
		if !yield(entry) {
			return
		}
	}
}

// Dep names another task. Location is nil if absent.
type Dep struct {
	Name     []byte
	Location []byte
}

// LogEntry is a change of a task's state. Time is in microseconds since 1970.
type LogEntry struct {
	State State
	Time  int64
}

// parse sets q to the message in payload, without a check that it has the fields of its type. The message and its parts
// together may have at most limit fields.
func (q *Query) parse(payload []byte, limit int) error {
	*q = Query{payload: payload}
	hasType := false
	f := fields{rest: payload}
	for f.next() && f.read <= limit {
		switch f.tag {
		case queryType:
			q.Type, hasType = Type(int32(f.number)), true
		case queryTask:
			read, err := checkTask(f.bytes, limit-f.read)
			if err != nil {
				return err
			}
			f.read += read
			q.Count++
		case queryName:
			q.Name = f.bytes
		case queryN:
			q.N, q.HasN = int32(f.number), true
		case queryLocation:
			q.Location = f.bytes
		}
	}
	switch {
	case f.broken:
		return errWire
	case f.read > limit:
		return errFields
	case !hasType:
		return errNoType
	case q.Type < Create || q.Type > Error:
		return errUnknownType
	}
	return nil
}

// parseTask reads a task's name and origin.
func parseTask(message []byte) Task {
	t := Task{message: message}
	f := fields{rest: message}
	for f.next() {
		switch f.tag {
		case taskName:
			t.Name = f.bytes
		case taskOrigin:
			t.Origin = f.bytes
		}
	}
	return t
}

// checkTask checks a task with all its parts. It returns the number of their fields, and an error if there are more
// than limit.
func checkTask(message []byte, limit int) (read int, err error) {
	hasName, hasOrigin := false, false
	f := fields{rest: message}
	for err == nil && f.next() && f.read <= limit {
		switch f.tag {
		case taskName:
			hasName = true
		case taskOrigin:
			hasOrigin = true
		case taskPred, taskSucc:
			_, read, err = parseDep(f.bytes)
			f.read += read
		case taskLog:
			_, read, err = parseLog(f.bytes)
			f.read += read
		}
	}
	switch {
	case err != nil:
		return 0, err
	case f.broken:
		return 0, errWire
	case f.read > limit:
		return 0, errFields
	case !hasName:
		return 0, errNoTaskName
	case !hasOrigin:
		return 0, errNoOrigin
	}
	return f.read, nil
}

// parseDep reads a dependency and returns the number of its fields.
func parseDep(message []byte) (d Dep, read int, err error) {
	f := fields{rest: message}
	for f.next() {
		switch f.tag {
		case depName:
			d.Name = f.bytes
		case depLocation:
			d.Location = f.bytes
		}
	}
	switch {
	case f.broken:
		return d, 0, errWire
	case d.Name == nil:
		return d, 0, errNoDepName
	}
	return d, f.read, nil
}

// parseLog reads a log entry and returns the number of its fields.
func parseLog(message []byte) (e LogEntry, read int, err error) {
	hasState, hasTime := false, false
	f := fields{rest: message}
	for f.next() {
		switch f.tag {
		case logState:
			e.State, hasState = State(int32(f.number)), true
		case logTime:
			e.Time, hasTime = int64(f.number), true
		}
	}
	switch {
	case f.broken:
		return e, 0, errWire
	case !hasState:
		return e, 0, errNoState
	case !hasTime:
		return e, 0, errNoTime
	case e.State < Pending || e.State > Recorded:
		return e, 0, errUnknownState
	}
	return e, f.read, nil
}
