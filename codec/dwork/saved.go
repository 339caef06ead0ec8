package dwork

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// SavedTask is an unfinished task in the files of the original hub. They have no origin, log or worker, so that a task
// that was assigned is ready again.
type SavedTask struct {
	ID    uint64 // the hub's own; older tasks mostly have smaller ones
	Name  []byte // a view of the file
	After []int  // indexes of the tasks that it waits for, ascending
}

// The ends of the names of the two files that the original hub saves when it is stopped.
const (
	SavedNames = "_th.flat"
	SavedTasks = "_tasks.flat"
)

// Saved is a graph of the original hub.
type Saved struct {
	Tasks    []SavedTask // ascending by ID
	Edges    int         // how many After there are
	Unpaired int         // entries that were skipped, because only one of the files has the task
}

// errSaved means that a file is not the original hub's, or is not complete.
var errSaved = errors.New("not a whole file of records, as the original hub saves when it is stopped")

// ReadSaved reads the two files of the original hub. A record of names has the name and the number of a task. A record
// of tasks has a number, how many tasks that task waits for, and the numbers of the tasks that wait for it. Numbers
// have eight bytes, the highest first. An error begins with the end of the file's name.
func ReadSaved(names, tasks []byte) (Saved, error) {
	var s Saved
	numbers := make(map[uint64]int)
	err := flatPairs(names, func(name, number []byte) error {
		if len(number) != 8 {
			return errSaved
		}
		s.Tasks = append(s.Tasks, SavedTask{ID: binary.BigEndian.Uint64(number), Name: name})
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("%s: %w", SavedNames, err)
	}
	slices.SortFunc(s.Tasks, func(a, b SavedTask) int { return cmp.Compare(a.ID, b.ID) })
	for i := range s.Tasks {
		numbers[s.Tasks[i].ID] = i
	}
	if len(numbers) < len(s.Tasks) {
		return s, fmt.Errorf("%s: %w: two tasks have one number", SavedNames, errSaved)
	}
	if err := s.link(numbers, tasks); err != nil {
		return s, fmt.Errorf("%s: %w", SavedTasks, err)
	}
	return s, nil
}

// link reads the dependencies. A task whose own record has none is ready, even when other records name it.
func (s *Saved) link(numbers map[uint64]int, tasks []byte) error {
	waits := make(map[int]bool, len(numbers)) // the tasks that have a record, and whether they wait
	err := flatPairs(tasks, func(number, state []byte) error {
		if len(number) != 8 || len(state)%8 != 0 {
			return errSaved
		}
		i, known := numbers[binary.BigEndian.Uint64(number)]
		switch {
		case !known:
			s.Unpaired++
			return nil
		case len(state) == 0: // complete
			return nil
		}
		waits[i] = int64(binary.BigEndian.Uint64(state)) > 0
		for state = state[8:]; len(state) > 0; state = state[8:] {
			if to, known := numbers[binary.BigEndian.Uint64(state)]; known {
				s.Tasks[to].After = append(s.Tasks[to].After, i)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.keep(waits)
	return nil
}

// keep drops the tasks without a record and updates the indexes of the others.
func (s *Saved) keep(waits map[int]bool) {
	moved := make([]int, len(s.Tasks))
	kept := s.Tasks[:0]
	for i, t := range s.Tasks {
		blocked, known := waits[i]
		if !known {
			s.Unpaired++
			continue
		}
		if !blocked {
			t.After = nil
		}
		moved[i] = len(kept)
		kept = append(kept, t)
	}
	s.Tasks = kept
	for i := range s.Tasks {
		t := &s.Tasks[i]
		for k, before := range t.After { // all of them have records
			t.After[k] = moved[before]
		}
		slices.Sort(t.After)
		t.After = slices.Compact(t.After)
		s.Edges += len(t.After)
	}
}

// Order returns the indexes of the tasks in an order in which each follows those that it waits for, older tasks first
// where they may. stuck are the tasks of a cycle, and those that wait for one.
func (s *Saved) Order() (order, stuck []int) {
	blocks := make([][]int, len(s.Tasks))
	left := make([]int, len(s.Tasks))
	for i, t := range s.Tasks {
		left[i] = len(t.After)
		for _, before := range t.After {
			blocks[before] = append(blocks[before], i)
		}
	}
	order = make([]int, 0, len(s.Tasks))
	for i := range s.Tasks { // nearly all are younger than their predecessors
		if left[i] == 0 {
			order = append(order, i)
		}
	}
	for k := 0; k < len(order); k++ {
		for _, i := range blocks[order[k]] {
			if left[i]--; left[i] == 0 {
				order = append(order, i)
			}
		}
	}
	for i := range s.Tasks {
		if left[i] > 0 {
			stuck = append(stuck, i)
		}
	}
	return order, stuck
}

// The kinds of records in a flat file of tkrzw. A record has a byte of its kind, its length and its bytes. The length
// is in groups of seven bits, the highest first; all but the last have the highest bit set.
const (
	flatRecord   = 0xff
	flatMetadata = 0xfe
)

// flatPairs calls fn with the records of a flat file in pairs, a key and a value. A file begins with a record of
// properties, among them the number of pairs. The original hub writes the whole file when it is stopped.
func flatPairs(file []byte, fn func(key, value []byte) error) error {
	pairs, at := 0, 0
	next := func(kind byte) ([]byte, error) {
		if at >= len(file) || file[at] != kind {
			return nil, fmt.Errorf("%w, at byte %d", errSaved, at)
		}
		size, n := flatNumber(file[at+1:])
		if n == 0 || size > uint64(len(file)-at-1-n) {
			return nil, fmt.Errorf("%w, at byte %d", errSaved, at)
		}
		body := file[at+1+n:][:size:size]
		at += 1 + n + int(size)
		return body, nil
	}
	head, err := next(flatMetadata)
	if err != nil {
		return err
	}
	want, err := flatCount(head)
	if err != nil {
		return err
	}
	for ; at < len(file); pairs++ {
		key, err := next(flatRecord)
		if err != nil {
			return err
		}
		value, err := next(flatRecord)
		if err != nil {
			return err
		}
		if err := fn(key, value); err != nil {
			return err
		}
	}
	if pairs != want {
		return fmt.Errorf("%w: %d of %d records", errSaved, pairs, want)
	}
	return nil
}

// flatCount finds the number of pairs in a file's properties, which are names and values in turn, each behind its
// length.
func flatCount(properties []byte) (int, error) {
	var name string
	for isName := true; len(properties) > 0; isName = !isName {
		size, n := flatNumber(properties)
		if n == 0 || size > uint64(len(properties)-n) {
			break
		}
		word := string(properties[n:][:size])
		properties = properties[n+int(size):]
		if isName {
			name = word
		} else if name == "num_records" {
			if count, err := strconv.Atoi(word); err == nil && count >= 0 {
				return count, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: it says no number of records", errSaved)
}

// flatNumber reads a length; n is 0 if b does not begin with a whole length.
func flatNumber(b []byte) (value uint64, n int) {
	for n < len(b) && value <= math.MaxUint64>>7 {
		value = value<<7 | uint64(b[n]&0x7f)
		n++
		if b[n-1] < 0x80 {
			return value, n
		}
	}
	return 0, 0
}
