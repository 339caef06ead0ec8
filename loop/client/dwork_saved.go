package client

import (
	"fmt"
	"os"

	"treadle/codec/dwork"
)

// SavedHub is the saved state of the original hub.
type SavedHub struct {
	Tasks []DworkTask // without origin, each behind its predecessors
	Stuck []string    // the names of tasks in a cycle of dependencies or behind one; not in Tasks
	Odd   int         // the number of entries that only one of the two files has; not in Tasks
}

// ReadSavedHub reads PREFIX_th.flat and PREFIX_tasks.flat, which the original hub writes when it
// stops.
func ReadSavedHub(prefix string) (*SavedHub, error) {
	var files [2][]byte
	for i, end := range []string{dwork.SavedNames, dwork.SavedTasks} {
		var err error
		if files[i], err = os.ReadFile(prefix + end); err != nil {
			return nil, err
		}
	}
	saved, err := dwork.ReadSaved(files[0], files[1])
	if err != nil {
		return nil, fmt.Errorf("%s%w", prefix, err)
	}
	names := make([]string, len(saved.Tasks))
	for i, t := range saved.Tasks {
		names[i] = string(t.Name)
	}
	order, stuck := saved.Order()
	h := &SavedHub{Tasks: make([]DworkTask, 0, len(order)), Odd: saved.Unpaired}
	for _, i := range order {
		t := DworkTask{Name: names[i]}
		for _, before := range saved.Tasks[i].After {
			t.After = append(t.After, names[before])
		}
		h.Tasks = append(h.Tasks, t)
	}
	for _, i := range stuck {
		h.Stuck = append(h.Stuck, names[i])
	}
	return h, nil
}
