package journal

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// groups writes some groups of a few jobs, tables and a log that is still needed, and returns the
// directory's image as kill -9 leaves it. states[i] is the state without the last i groups.
func groups(t testTB, mode Mode, flush bool) (m image, states []state) {
	t.Helper()
	f := vfs.NewCrashableMem()
	o := testOptions(f)
	o.Sync = mode
	if flush {
		o.LogSize = 1900 // the first turns are in tables, the last ones in a log
	}
	d := mustOpen(t, o)
	for turn := range 12 {
		for range 3 {
			d.create(40)
		}
		if turn > 4 {
			d.remove(uint64(turn))
		}
		d.setting("turn", fmt.Sprint(turn))
		d.wait()
	}
	d.quiet()
	m = imageOf(t, f)
	last := d.j.Committed()
	if err := d.j.Close(); err != nil {
		t.Fatalf("%v", err)
	}
	for g := last; g > 0; g-- {
		states = append(states, d.after(g))
	}
	return m, states
}

// missing returns how many of the last groups a state lacks, or -1 for any other state.
func missing(states []state, got state) int { return slices.IndexFunc(states, got.equal) }

// open opens an image and returns how many groups it lacks.
func (m image) open(t *testing.T, states []state) (lacks int, err error) {
	t.Helper()
	got, err := reopen(m.disk(t))
	if err != nil {
		return 0, err
	}
	return missing(states, got), nil
}

// liveLog returns the log in use and the bytes written to it.
func (m image) liveLog(t *testing.T) (name string, b []byte) {
	t.Helper()
	names := m.logs()
	name = names[len(names)-1]
	return name, m[name]
}

// logs returns the names of all logs, in order. The store also creates files with the suffix, which
// it does not use.
func (m image) logs() []string {
	return slices.DeleteFunc(m.names(logSuffix), func(name string) bool { return path.Base(path.Dir(name)) != logsName })
}

// TestTornAndZeroedTails checks that a log that is truncated anywhere, or ends in zeros or garbage,
// loses only its incomplete groups and never prevents a start. A step is much shorter than a group.
func TestTornAndZeroedTails(t *testing.T) {
	t.Parallel()
	for mode, step := range map[Mode]int{Always: 3, Never: 11} {
		if testing.Short() {
			step *= 7
		}
		m, states := groups(t, mode, true)
		name, b := m.liveLog(t)
		parts := mustScan(t, name, b)
		if len(parts) < 5 {
			t.Fatalf("%d groups in the log", len(parts))
		}
		for n := 0; n <= len(b); n += step {
			if n > logHeadSize && n < logStart { // between the copies of the head
				n = max(n, logStart-2*step)
			}
			whole := 0
			for _, p := range parts {
				if p.whole && int(p.end) <= n {
					whole++
				}
			}
			if lacks, err := m.with(name, b[:n]).open(t, states); err != nil || lacks != len(parts)-whole {
				t.Fatalf("%v: cut at %d of %d: %v, lacks %d groups, want %d", mode, n, len(b), err, lacks, len(parts)-whole)
			}
			if n%(11*step) > 0 || n < logStart { // the head is synced before any other write
				continue
			}
			for _, fill := range []byte{0, 0xff} {
				tail := append(bytes.Clone(b[:n]), bytes.Repeat([]byte{fill}, len(b)-n+100)...)
				if lacks, err := m.with(name, tail).open(t, states); err != nil || lacks != len(parts)-whole {
					t.Fatalf("%v: %#x from %d of %d: %v, lacks %d groups, want %d", mode, fill, n, len(b), err, lacks, len(parts)-whole)
				}
			}
		}
	}
}

// TestCorruptLog damages every byte of the log in turn. The report names the log and an offset up
// to that byte, except in the last group, which then counts as torn.
func TestCorruptLog(t *testing.T) {
	t.Parallel()
	m, states := groups(t, Always, true)
	name, b := m.liveLog(t)
	parts := mustScan(t, name, b)
	last := parts[len(parts)-1]
	step := 2
	if testing.Short() {
		step = 17
	}
	for at := 0; at < len(b); at += step {
		if at > logHeadSize && at < logStart-logHeadSize && at%logPage > logHeadSize {
			continue // nothing was written there
		}
		bad := bytes.Clone(b)
		bad[at] ^= 0x41
		lacks, err := m.with(name, bad).open(t, states)
		if at < logStart { // the other copy of the head is good
			if err != nil || lacks != 0 {
				t.Fatalf("byte %d, of the head: %v, lacks %d groups", at, err, lacks)
			}
			continue
		}
		if at >= int(last.offset) {
			if err != nil || lacks > 1 || lacks < 0 {
				t.Fatalf("byte %d, in or behind the last group: %v, lacks %d groups", at, err, lacks)
			}
			continue
		}
		if err == nil && lacks == 0 && slices.ContainsFunc(parts, func(p logPart) bool { return at == int(p.offset)+tagSize || at == int(p.offset)+tagSize+1 }) {
			continue // the first length is read only when the second one is wrong
		}
		var damage *DamageError
		if !errors.As(err, &damage) {
			t.Fatalf("byte %d of %d: %v, lacks %d groups", at, len(b), err, lacks)
		}
		d := damage.Damage[0]
		if path.Join(testDir, d.File) != name || d.Offset < 0 || int(d.Offset) > at || int(d.Offset+d.Length) <= at {
			t.Fatalf("byte %d of %s is reported as %v", at, name, d)
		}
		if !strings.Contains(err.Error(), d.File) || !strings.Contains(err.Error(), fmt.Sprint("offset ", d.Offset)) {
			t.Fatalf("the error does not tell: %v", err)
		}
	}
}

// TestHoleWithoutSync checks mode Never, in which a loss of power may leave holes in the middle of
// a log: the journal starts with what precedes the first hole.
func TestHoleWithoutSync(t *testing.T) {
	f := vfs.NewCrashableMem()
	o := testOptions(f)
	o.Sync, o.LogSize = Never, 4<<20
	d := mustOpen(t, o)
	for range 40 {
		for range 20 {
			d.create(500)
		}
		d.wait()
	}
	m := imageOf(t, f)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	name, b := m.liveLog(t)
	if len(b) < 8*logBlock {
		t.Fatalf("the log has %d bytes only", len(b))
	}
	for at := 4096; at+4096 < len(b); at += 9 * 4096 {
		bad := bytes.Clone(b)
		clear(bad[at : at+4096])
		got, err := reopen(m.with(name, bad).disk(t))
		if err == nil {
			err = d.verify(got, 0)
		}
		if err != nil {
			t.Fatalf("a hole at %d of %d: %v", at, len(b), err)
		}
	}
}

// TestCorruptManifest damages every byte of the manifest in turn: the damage is reported, or
// nothing committed is missing.
func TestCorruptManifest(t *testing.T) {
	m, states := groups(t, Always, true)
	names := m.names("")
	i := slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, "/MANIFEST-") && n != testDir+"/store/MANIFEST-000001" })
	name := names[i]
	b := m[name]
	reported := 0
	for at := range b {
		bad := bytes.Clone(b)
		bad[at] ^= 0x41
		lacks, err := m.with(name, bad).open(t, states)
		var damage *DamageError
		switch {
		case errors.As(err, &damage):
			reported++
		case err != nil || lacks != 0:
			t.Fatalf("byte %d of %d of %s: %v, lacks %d groups", at, len(b), name, err, lacks)
		}
	}
	if reported < len(b)/2 {
		t.Fatalf("%d of %d bytes reported", reported, len(b))
	}
}

// TestCorruptTable damages every byte of a live table in turn. Open or Replay reports it, or
// everything committed is read and the byte holds no record. Check always reports it, with a place
// that contains the byte. A compacted table that reappears after a crash does no harm.
func TestCorruptTable(t *testing.T) {
	t.Parallel()
	m, states := groups(t, Always, true)
	live := liveTables(t, m)
	if len(live) == 0 {
		t.Fatal("no table is in use")
	}
	step := 3
	if testing.Short() {
		step = 29
	}
	for _, name := range m.names(".sst") {
		if live[name] == 0 {
			lacks, err := m.with(name, flipped(m[name], len(m[name])/3)).open(t, states)
			if err != nil || lacks != 0 {
				t.Errorf("%s, which is not in use: %v, lacks %d groups", name, err, lacks)
			}
			continue
		}
		for at := 0; at < len(m[name]); at += step {
			bad := m.with(name, flipped(m[name], at))
			lacks, err := bad.open(t, states)
			var damage *DamageError
			switch {
			case errors.As(err, &damage):
				checkDamageAt(t, damage.Damage, name, at)
			case err != nil || lacks != 0:
				t.Fatalf("byte %d of %d of %s: %v, lacks %d groups", at, len(m[name]), name, err, lacks)
			case at < live[name]:
				t.Errorf("byte %d of %s, among the records: not reported", at, name)
			}
			r, err := Check(testDir, bad.disk(t))
			if err != nil {
				t.Fatalf("byte %d of %s: %v", at, name, err)
			}
			checkDamageAt(t, r.Damage, name, at)
		}
	}
}

// liveTables returns the number of record bytes in each live table.
func liveTables(t *testing.T, m image) map[string]int {
	t.Helper()
	disk := m.disk(t)
	h, err := lockDataDir(disk, testDir, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.survey(presentFormat)
	if err = errors.Join(err, h.close()); err != nil {
		t.Fatal(err)
	}
	live := map[string]int{}
	for base := range s.tables {
		name := path.Join(testDir, storeName, base)
		table, err := openTable(disk, name)
		if err != nil {
			t.Fatal(err)
		}
		layout, err := table.r.Layout()
		table.close()
		if err != nil {
			t.Fatal(err)
		}
		last := layout.Data[len(layout.Data)-1]
		live[name] = int(last.Offset+last.Length) + blockTrailer
	}
	return live
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x41
	return b
}

// checkDamageAt checks that one byte's damage is reported with the file's name and a place that contains
// the byte.
func checkDamageAt(t *testing.T, damage []Damage, name string, at int) {
	t.Helper()
	for _, d := range damage {
		if path.Join(testDir, d.File) == name && int(d.Offset) <= at && at < int(d.Offset+d.Length) {
			return
		}
	}
	t.Errorf("byte %d of %s is reported as %v", at, name, damage)
}

// TestMissingFiles checks that a missing or truncated file is reported by name.
func TestMissingFiles(t *testing.T) {
	m, states := groups(t, Always, true)
	live, _ := m.liveLog(t)
	for name, b := range m {
		base := path.Base(name)
		for _, cut := range []bool{false, true} {
			if cut && len(b) < 100 {
				continue
			}
			bad := m.with(name, b[:len(b)/2])
			if !cut {
				delete(bad, name)
			}
			lacks, err := bad.open(t, states)
			switch {
			case base == lockName || strings.HasPrefix(base, "OPTIONS") || strings.HasPrefix(base, "marker.format") || base == "MANIFEST-000001":
				// The store does not need this file, or reports its absence itself.
			case strings.HasSuffix(base, ".log") && name != live:
				if err != nil || lacks != 0 {
					t.Errorf("without %s, which waits for its next use: %v, lacks %d groups", base, err, lacks)
				}
			case strings.HasSuffix(base, ".log"):
				// When everything later is gone too, nothing is left that could tell.
				if err != nil || lacks < 1 {
					t.Errorf("without %s (cut: %v): %v, lacks %d groups", base, cut, err, lacks)
				}
			case err == nil && lacks == 0: // for example a compacted table
			case err == nil:
				t.Errorf("without %s (cut: %v): lacks %d groups, and no damage is reported", base, cut, lacks)
			case !cut && base != formatName && !strings.Contains(err.Error(), strings.TrimPrefix(base, "marker.")[:4]):
				t.Errorf("without %s: %v", base, err)
			}
		}
	}
}

// TestMissingLog checks that a missing log breaks the chain of groups, and so does a log
// that was not closed properly.
func TestMissingLog(t *testing.T) {
	f := &slowSync{FS: vfs.NewCrashableMem()}
	f.tables.Lock() // no table is written, so all logs stay in use
	d := mustOpen(t, testOptions(f))
	for range 45 {
		d.create(2000)
		d.wait()
	}
	m := imageOf(t, f.FS.(*vfs.MemFS))
	f.tables.Unlock()
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	logs := m.logs()
	if len(logs) < 3 {
		t.Fatalf("logs %v", logs)
	}
	for i, name := range logs {
		bad := m.with(name, nil)
		delete(bad, name)
		got, err := reopen(bad.disk(t))
		if i == len(logs)-1 {
			if err != nil || d.verify(got, 0) != nil {
				t.Errorf("without the last log: %v", err)
			}
			continue
		}
		next := path.Base(logs[i+1])
		var damage *DamageError
		if !errors.As(err, &damage) || len(damage.Damage) != 1 || !strings.Contains(err.Error(), "missing before group") || !strings.Contains(err.Error(), next) {
			t.Errorf("without %s: %v", name, err)
		}
		b := m[name]
		for _, cut := range []int{len(b) / 2, len(b) - 3*chunkHead} {
			if _, err := reopen(m.with(name, b[:cut]).disk(t)); err == nil {
				t.Errorf("%s cut at %d of %d, and no damage is reported", name, cut, len(b))
			}
		}
	}
}

// TestHarmlessGap checks that a gap in a log in which no group is missing is skipped, and the
// groups behind it are read.
func TestHarmlessGap(t *testing.T) {
	t.Parallel()
	f := vfs.NewMem()
	if _, err := reopen(f); err != nil {
		t.Fatal(err)
	}
	m := takeImage(t, f, testDir)
	name, b := m.liveLog(t)
	parts := mustScan(t, name, b)
	last, err := batchMeta(parts[len(parts)-1].data)
	if err != nil {
		t.Fatal(err)
	}
	delete(m, path.Join(testDir, storeName, closedName))
	delete(m, name)
	l := newTestLog(t, 9)
	for _, p := range parts {
		l.add(p.data)
	}
	add := func(seq uint64) {
		batch := appendPut(startBatch(nil), &Record{Seq: seq, Space: 1, Queue: []byte("q"), Name: fmt.Append(nil, seq)})
		sealBatch(batch, &meta{group: last.group + seq, previous: last.group + seq - 1, epoch: last.epoch, maxSeq: seq, records: 1, prevSynced: true}, 1)
		l.add(batch)
	}
	add(1)
	at := len(l.b)
	l.b = l.key.appendChunk(l.b, 0, fullChunk, []byte("damaged"))
	l.b[at] ^= 1
	add(2)
	disk := m.with(path.Join(path.Dir(name), logName(9)), l.b).disk(t)
	if r, err := Check(testDir, disk); err != nil || r.Jobs != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if got, err := reopen(disk); err != nil || len(got.jobs) != 2 {
		t.Errorf("%v, %d jobs", err, len(got.jobs))
	}
}
