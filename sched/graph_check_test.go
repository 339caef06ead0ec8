package sched

import (
	"cmp"
	"fmt"
	"slices"
)

// compare compares everything that scheduler and model show, and checks the scheduler's structures.
func (x *graphMachine) compare() error {
	if err := x.s.check(); err != nil {
		return err
	}
	if err := x.compareDeliveries(); err != nil {
		return err
	}
	active, lined := 0, 0
	for _, j := range x.m.all {
		active += oneIf(j.space == graphTasks)
		lined += oneIf(j.space == graphTasks && j.state == ready)
	}
	gotActive, gotLined := x.s.Backlog(graphQueue)
	if gotActive != active || gotLined != lined {
		return fmt.Errorf("backlog: got %d of them %d ready, want %d, %d", gotActive, gotLined, active, lined)
	}
	if err := same("jobs", x.s.Stats().Jobs, len(x.m.all)); err != nil {
		return err
	}
	for _, name := range graphNames {
		if err := x.compareTask(name); err != nil {
			return fmt.Errorf("task %.8q: %w", name, err)
		}
	}
	return x.compareWalk()
}

func (x *graphMachine) compareDeliveries() error {
	var got []delivered
	for _, d := range x.rec.take() {
		d.job = deliveredJob{space: d.job.space, name: d.job.name, workload: d.job.workload, count: d.job.count}
		got = append(got, d)
	}
	want := x.m.want
	x.m.want = nil
	bySession := func(a, b delivered) int { return cmp.Compare(a.to, b.to) } // in which order sessions are served is free
	slices.SortStableFunc(got, bySession)
	slices.SortStableFunc(want, bySession)
	if !slices.Equal(got, want) {
		return fmt.Errorf("deliveries: got %+v, want %+v", got, want)
	}
	return nil
}

func (x *graphMachine) compareTask(name string) (err error) {
	j := x.m.find(graphTasks, name)
	if j == nil {
		j = x.m.remembered(name)
	}
	known := x.s.LookupTask(graphTasks, graphQueue, []byte(name), func(v *TaskView) {
		if j != nil {
			err = x.compareView(v, j)
		}
	})
	if err != nil {
		return err
	}
	return same("known", known, j != nil)
}

func (x *graphMachine) compareView(v *TaskView, j *graphJob) error {
	stage := map[state]uint8{delayed: StageReady, ready: StageReady, parked: StageReady, reserved: StageReserved, remembered: StageDone}[j.state]
	holder, by := "", SessionID(0)
	if j.state == reserved {
		holder = j.holder
		for _, w := range x.m.workers {
			if w.name == j.holder {
				holder, by = "", w.id
			}
		}
	}
	after, before := x.m.after(j), x.m.before(j)
	gotAfter, gotBefore := texts(v.After()), texts(v.Before())
	for _, names := range [][]string{after, before, gotAfter, gotBefore} {
		slices.Sort(names)
	}
	switch {
	case v.Stage != stage || v.Holder != holder || v.By != by:
		return fmt.Errorf("stage %d of %q %d, want %d of %q %d", v.Stage, v.Holder, v.By, stage, holder, by)
	case !slices.Equal(v.Log, j.log):
		return fmt.Errorf("log %v, want %v", v.Log, j.log)
	case !slices.Equal(gotAfter, after) || !slices.Equal(gotBefore, before):
		return fmt.Errorf("after %.8q before %.8q, want %.8q and %.8q", gotAfter, gotBefore, after, before)
	case string(v.Workload) != j.workload || v.Count != j.count || v.Running != (j.state == reserved):
		return fmt.Errorf("job %+v, want %+v", v.Job, j)
	}
	return nil
}

// texts copies the names that an iterator yields.
func texts(all func(func([]byte) bool)) (names []string) {
	for name := range all {
		names = append(names, string(name))
	}
	return names
}

// compareWalk sees every task once.
func (x *graphMachine) compareWalk() error {
	var got, want []string
	for c, done := (Cursor{}), false; !done; {
		c, done = x.s.WalkTasks(c, slabChunk/2, graphTasks, func(v *TaskView) { got = append(got, string(v.Name)) })
	}
	for _, j := range x.m.all {
		if j.space == graphTasks {
			want = append(want, j.name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("walk: got %.8q, want %.8q", got, want)
	}
	return x.s.checkListings(x.m.now, 2, 3)
}
