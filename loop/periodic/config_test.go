package periodic

import (
	"encoding/binary"
	"runtime"
	"sync"
	"testing"

	"treadle/loop/protocol"
	"treadle/sched"
)

// savingHost is a host whose journal keeps the last value of a setting.
type savingHost struct {
	protocol.Host
	sched *sched.Scheduler
	mu    sync.Mutex
	saved uint32
}

func (h *savingHost) Sched() *sched.Scheduler { return h.sched }

func (h *savingHost) Limits() protocol.Limits { return protocol.Limits{} }

func (h *savingHost) PutSetting(_ string, value []byte) {
	saved := binary.BigEndian.Uint32(value)
	for range saved { // so that the smaller value overtakes
		runtime.Gosched()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.saved = saved
}

// TestConcurrentConfig: of two concurrent CONFIG_SETs, one wins everywhere: in the values, the
// scheduler and the journal.
func TestConcurrentConfig(t *testing.T) {
	h := &savingHost{sched: sched.New(sched.Options{})}
	p := New(h, Options{})
	for range 2000 {
		var both sync.WaitGroup
		for value := range uint32(2) {
			both.Go(func() { p.setConfig(keyTimeout, 1+8*value) })
		}
		both.Wait()
		value := p.config.get(keyTimeout, &plainVersion)
		if h.saved != value || h.sched.Timeout() != int64(value)*1000 {
			t.Fatalf("the value is %d, the scheduler's %d, the journal's %d", value, h.sched.Timeout()/1000, h.saved)
		}
	}
}
