package journal

import (
	"bytes"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// flipImages returns a directory with logs, tables and settings as a kill and as a clean shutdown
// leave it, and its states after each group, the last one first.
func flipImages(t *testing.T) (killed, closed image, states []state) {
	f := vfs.NewCrashableMem()
	o := testOptions(f)
	o.LogSize = 1900
	d := mustOpen(t, o)
	for turn := range 12 {
		for range 3 {
			d.create(40)
		}
		if turn > 4 {
			d.remove(uint64(turn))
		}
		d.setting("turn", string(rune('a'+turn)))
		d.wait()
	}
	d.quiet()
	killed = imageOf(t, f)
	return killed, d.closed(f), d.states()
}

// closed returns the image after a clean shutdown.
func (d *driver) closed(f *vfs.MemFS) image {
	if err := d.j.Close(); err != nil {
		d.tb.Fatalf("%v", err)
	}
	return imageOf(d.tb, f)
}

// states returns the states after each group, the last one first.
func (d *driver) states() (all []state) {
	for g := d.j.Committed(); g > 0; g-- {
		all = append(all, d.after(g))
	}
	return all
}

// opened returns the state of a directory and how many bytes its start dropped.
func opened(t *testing.T, m image) (got state, dropped uint64, err error) {
	j, err := Open(testOptions(m.disk(t)))
	if err != nil {
		return got, 0, err
	}
	got, err = readState(j)
	return got, j.Stats().Dropped, errors.Join(err, j.Close())
}

// TestFlips flips bits of every file: a start is refused, or nothing is missing, or the last group
// of a directory that was not closed is dropped and reported.
func TestFlips(t *testing.T) {
	t.Parallel()
	killed, closed, states := flipImages(t)
	step := 3
	if testing.Short() {
		step = 61
	}
	for _, m := range []image{killed, closed} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if path.Base(name) == lockName {
				continue
			}
			few := step
			if len(m[name]) < 200 {
				few = min(step, 5)
			}
			for at := 0; at < len(m[name]); at += few {
				isLog := strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".spare")
				if isLog && at < logStart && at%logPage > logHeadSize {
					continue // nothing was written there
				}
				checkFlip(t, m, states, name, at)
			}
		}
	}
}

func checkFlip(t *testing.T, m image, states []state, name string, at int) {
	bad := bytes.Clone(m[name])
	bad[at] ^= 1 << (at % 8)
	m = m.with(name, bad)
	got, dropped, err := opened(t, m)
	if err == nil {
		switch lacks := missing(states, got); {
		case lacks == 0:
		case lacks == 1 && dropped > 0:
			if _, closed := m[path.Join(testDir, storeName, closedName)]; !closed || strings.HasSuffix(name, closedName) {
				return
			}
			t.Errorf("%s, byte %d: a group of a closed directory is dropped", name, at)
		default:
			t.Errorf("%s, byte %d: %d groups are missing, %d bytes are reported", name, at, lacks, dropped)
		}
		return
	}
	if at%5 > 0 && len(bad) > 200 {
		return
	}
	disk := m.disk(t)
	if r, err := Check(testDir, disk); err == nil && len(r.Damage) == 0 {
		t.Errorf("%s, byte %d: a check reports nothing", name, at)
	}
	if _, err := Repair(testDir, disk); err != nil {
		t.Errorf("%s, byte %d: %v", name, at, err)
	} else if _, err := reopen(disk); err != nil {
		t.Errorf("%s, byte %d, after a repair: %v", name, at, err)
	}
}

// TestFlipsInManyLogs checks that a flipped bit in one of several logs, whose groups have many
// parts, loses at most the last group, and that the loss is reported.
func TestFlipsInManyLogs(t *testing.T) {
	t.Parallel()
	step := 101
	if testing.Short() {
		step = 997
	}
	for _, mode := range []Mode{Always, Interval} {
		f := &slowSync{FS: vfs.NewCrashableMem()}
		f.tables.Lock() // the logs stay
		o := testOptions(f)
		o.Sync, o.LogSize, o.BatchSize = mode, 40<<10, 3<<10
		d := mustOpen(t, o)
		for range 9 {
			for range 5 {
				d.create(2000)
			}
			if d.next > 8 {
				d.remove(d.next - 7)
			}
			d.wait()
		}
		m := imageOf(t, f.FS.(*vfs.MemFS))
		f.tables.Unlock()
		d.closed(f.FS.(*vfs.MemFS))
		states, logs := d.states(), m.logs()
		if len(logs) < 3 {
			t.Fatalf("only %d logs", len(logs))
		}
		for i, name := range logs {
			last := lastGroupAt(t, name, m[name])
			for at := 0; at < len(m[name]); at += step {
				bad := bytes.Clone(m[name])
				bad[at] ^= 1 << (at % 8)
				got, dropped, err := opened(t, m.with(name, bad))
				var damage *DamageError
				if errors.As(err, &damage) {
					continue
				}
				lacks := missing(states, got)
				if err != nil || lacks != 0 && (lacks != 1 || dropped == 0 || i < len(logs)-1 || at < last) {
					t.Errorf("%v, %s at %d: %v, %d groups are missing, %d bytes are reported", mode, name, at, err, lacks, dropped)
				}
			}
		}
	}
}

// lastGroupAt returns the offset of the last group of a log.
func lastGroupAt(t *testing.T, name string, b []byte) int {
	parts := mustScan(t, name, b)
	for k := len(parts) - 1; k >= 0; k-- {
		m, err := batchMeta(parts[k].data)
		if err != nil {
			t.Fatal(err)
		}
		if m.part == 0 {
			return int(parts[k].offset)
		}
	}
	t.Fatal("no group begins here")
	return 0
}

// sectorImage returns a killed directory with a log of n small groups.
func sectorImage(t *testing.T, n int) (m image, states []state) {
	f := vfs.NewCrashableMem()
	o := testOptions(f)
	o.LogSize = 4 << 20
	d := mustOpen(t, o)
	for range n {
		d.create(40)
		d.wait()
	}
	m = imageOf(t, f)
	d.closed(f)
	return m, d.states()
}

// TestBadSector checks that a sector of zeros or noise in the middle of a log loses nothing that
// can be read, and is reported.
func TestBadSector(t *testing.T) {
	t.Parallel()
	m, states := sectorImage(t, 200)
	name, b := m.liveLog(t)
	noise := bytes.Repeat([]byte("\x5a\xc3\x99"), sector)[:sector]
	for _, contents := range [][]byte{make([]byte, sector), noise} {
		for at := logStart; at+sector <= len(b)-sector; at += sector {
			bad := bytes.Clone(b)
			copy(bad[at:], contents)
			got, dropped, err := opened(t, m.with(name, bad))
			var damage *DamageError
			if errors.As(err, &damage) {
				continue
			}
			if lacks := missing(states, got); err != nil || lacks > 0 {
				t.Errorf("sector at %d: %v, %d groups are missing, %d bytes are reported", at, err, lacks, dropped)
			}
		}
	}
}

// TestZeroedHead checks that a record with a zeroed head is reported, unless it is the very last
// one, which looks like a write that never began.
func TestZeroedHead(t *testing.T) {
	t.Parallel()
	m, states := sectorImage(t, 60)
	name, b := m.liveLog(t)
	parts := mustScan(t, name, b)
	for i, p := range parts[:len(parts)-1] {
		bad := bytes.Clone(b)
		clear(bad[p.offset : p.offset+chunkHead])
		got, dropped, err := opened(t, m.with(name, bad))
		var damage *DamageError
		if errors.As(err, &damage) {
			continue
		}
		if lacks := missing(states, got); err != nil || lacks > 0 && dropped == 0 {
			t.Errorf("record %d of %d: %v, %d groups are missing", i, len(parts), err, lacks)
		}
	}
}
