package dwork

// Query is one decoded message. Its fields are views into the payload. It is reused from call to call: Decode and
// DecodeReply set every field.
type Query struct {
	Type     Type
	Count    int    // how many tasks there are
	Name     []byte // nil when there is none; an empty one is not nil
	Location []byte // nil when there is none; an empty one is not nil
	N        int32  // 0 when there is none
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

func (t Task) deps(tag uint64, yield func(Dep) bool) {
	f := fields{rest: t.message}
	for f.next() {
		if f.tag != tag {
			continue
		}
		dep, _ := parseDep(f.bytes)
		if !yield(dep) {
			return
		}
	}
}

// Log yields what happened to the task, oldest first.
func (t Task) Log(yield func(LogEntry) bool) {
	f := fields{rest: t.message}
	for f.next() {
		if f.tag != taskLog {
			continue
		}
		entry, _ := parseLog(f.bytes)
		if !yield(entry) {
			return
		}
	}
}

// Dep names another task. Location is nil when there is none.
type Dep struct {
	Name     []byte
	Location []byte
}

// LogEntry is one thing that happened to a task, Time in microseconds since 1970.
type LogEntry struct {
	State State
	Time  int64
}

// parse sets q to the message in payload, whatever its type's fields should be.
func (q *Query) parse(payload []byte) error {
	*q = Query{payload: payload}
	hasType := false
	f := fields{rest: payload}
	for f.next() {
		switch f.tag {
		case queryType:
			q.Type, hasType = Type(int32(f.number)), true
		case queryTask:
			if err := checkTask(f.bytes); err != nil {
				return err
			}
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
	case !hasType:
		return errNoType
	case q.Type < Create || q.Type > Error:
		return errUnknownType
	}
	return nil
}

// parseTask reads a task's own fields, without a look into its parts.
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

// checkTask judges a task with all its parts.
func checkTask(message []byte) (err error) {
	hasName, hasOrigin := false, false
	f := fields{rest: message}
	for err == nil && f.next() {
		switch f.tag {
		case taskName:
			hasName = true
		case taskOrigin:
			hasOrigin = true
		case taskPred, taskSucc:
			_, err = parseDep(f.bytes)
		case taskLog:
			_, err = parseLog(f.bytes)
		}
	}
	switch {
	case err != nil:
		return err
	case f.broken:
		return errWire
	case !hasName:
		return errNoTaskName
	case !hasOrigin:
		return errNoOrigin
	}
	return nil
}

func parseDep(message []byte) (Dep, error) {
	var d Dep
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
		return d, errWire
	case d.Name == nil:
		return d, errNoDepName
	}
	return d, nil
}

func parseLog(message []byte) (LogEntry, error) {
	var e LogEntry
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
		return e, errWire
	case !hasState:
		return e, errNoState
	case !hasTime:
		return e, errNoTime
	case e.State < Pending || e.State > Recorded:
		return e, errUnknownState
	}
	return e, nil
}
