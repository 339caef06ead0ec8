package page

import (
	"net/http"

	codec "treadle/codec/admin"
)

// tile is a number of jobs in a state.
type tile struct {
	State string
	Count int
}

// homeData is the overview as the page has it.
type homeData struct {
	*codec.Overview
	Tiles       []tile
	Uptime      int64 // seconds
	Oldest      int64 // of all queues, in seconds
	MemoryMeter meter
	DiskLow     bool
	Chart       *chart
	Rows        []queueRow
}

// meter is a part of a whole, in hundredths.
type meter struct {
	Part int
	Warn bool
}

func newMeter(part, whole float64) meter {
	if whole <= 0 {
		return meter{}
	}
	m := meter{Part: int(min(max(part/whole, 0), 1) * 100)}
	m.Warn = m.Part >= 90
	return m
}

// home is the overview.
func (s *Pages) home(r *http.Request) (*view, error) {
	o, err := s.currentOverview(r)
	if err != nil {
		return nil, err
	}
	d := homeData{Overview: o, Uptime: (o.At - o.Started) / 1000}
	all := o.Rest
	d.Oldest = all.Oldest
	for i := range o.Queues {
		q := &o.Queues[i]
		all.Ready, all.Running, all.Delayed = all.Ready+q.Ready, all.Running+q.Running, all.Delayed+q.Delayed
		all.Locked, all.Waiting = all.Locked+q.Locked, all.Waiting+q.Waiting
		all.Failed, all.Done, d.Oldest = all.Failed+q.Failed, all.Done+q.Done, max(d.Oldest, q.Oldest)
		d.Rows = append(d.Rows, s.queueRow(r, q))
	}
	d.Tiles = []tile{
		{"ready", all.Ready}, {"running", all.Running}, {"delayed", all.Delayed}, {"locked", all.Locked},
		{"waiting", all.Waiting}, {"failed", all.Failed}, {"done", all.Done},
	}
	d.MemoryMeter = newMeter(float64(o.Memory), float64(o.MemoryLimit))
	if o.Journal != nil {
		d.DiskLow = o.Journal.Free < 2*o.Journal.MinFree
	}
	if d.Chart, err = s.chartOf(r, ""); err != nil {
		return nil, err
	}
	return &view{name: "overview", title: "Overview", area: "/", data: &d}, nil
}
