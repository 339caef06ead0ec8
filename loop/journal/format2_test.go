package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"path"
	"strings"
	"testing"
)

// plantedSeq is the Seq of a job that a client has written into its workload.
const plantedSeq = 1 << 20

var formatFile = path.Join(testDir, storeName, formatName)

// plantedBatch returns a group that follows the group previous, with a job that was never
// submitted.
func plantedBatch(previous, epoch uint64) []byte {
	batch := appendPut(startBatch(nil), &Record{Seq: plantedSeq, Space: 1, Queue: []byte("planted"), Name: []byte("planted")})
	sealBatch(batch, &meta{group: previous + 1, previous: previous, epoch: epoch, maxSeq: plantedSeq, records: 1, prevSynced: true}, 1)
	return batch
}

// TestFormat2Stale checks that bytes of a workload behind the last group of a format 2 log, in that
// format's framing and with any group number but the next, are ignored by a start and a repair.
// With the next number they cannot be told from the server's own.
func TestFormat2Stale(t *testing.T) {
	m, want := format2(t, "killed")
	name, b := m.liveLog(t)
	parts, _ := format2Framing(fileNumber(path.Base(name))).parts(t, b)
	var last meta
	end := 0
	for _, p := range parts {
		if p.whole {
			last, _ = batchMeta(p.data)
			end = int(p.end)
		}
	}
	for _, previous := range []uint64{1, last.group + 1, last.group + 1000} {
		bad := append(bytes.Clone(b[:end]), format2Record(nil, fileNumber(path.Base(name)), plantedBatch(previous, 1))...)
		bad = append(bad, b[min(len(b), len(bad)):]...)
		m := m.with(name, bad)
		if got, err := reopen(m.disk(t)); err == nil && !got.equal(want) {
			t.Errorf("behind group %d: %s", previous, got.diff(want))
		}
		disk := m.with(formatFile, []byte("treadle journal ?\n")).disk(t) // needs a repair
		if _, err := Repair(testDir, disk); err != nil {
			t.Errorf("behind group %d: %v", previous, err)
		}
		if got, err := reopen(disk); err != nil || got.jobs[plantedSeq] != "" {
			t.Errorf("behind group %d, repaired: %v, %s", previous, err, got.diff(want))
		}
	}
}

// TestFormat2Planted checks that a workload in a format 2 log that looks like a log of format 3
// from the second copy of its head on is not read as one, whatever FORMAT says.
func TestFormat2Planted(t *testing.T) {
	m, _ := format2(t, "closed")
	name, _ := m.liveLog(t)
	number := fileNumber(path.Base(name))
	h, err := lockDataDir(m.disk(t), testDir, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.survey(2)
	if err != nil {
		t.Fatal(err)
	}
	l := newTestLog(t, number)
	l.add(plantedBatch(s.inTables.group, s.inTables.epoch))
	log := format2Log(number, s.inTables, l.b[logPage:])
	if !bytes.HasPrefix(log[logPage:], []byte(logMagic)) {
		t.Fatal("the workload is elsewhere")
	}
	m = m.with(name, log)
	for _, text := range []string{"treadle journal 2\n", "treadle journal 3\n", "treadle journal ?\n"} {
		disk := m.with(formatFile, []byte(text)).disk(t)
		if got, err := reopen(disk); err == nil && got.jobs[plantedSeq] != "" {
			t.Errorf("%q: a start takes the planted job", text)
		}
		if _, err := Repair(testDir, disk); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, err := reopen(disk); err != nil || got.jobs[plantedSeq] != "" {
			t.Errorf("%q: %v, a repair takes the planted job", text, err)
		}
	}
}

// format2Log returns a format 2 log with one group, which follows before. Its job's workload has
// the bytes second where a log of format 3 has the second copy of its head.
func format2Log(number uint64, before meta, second []byte) (log []byte) {
	workload := make([]byte, 60<<10)
	group := func() []byte {
		batch := appendPut(startBatch(nil), &Record{Seq: 5000, Space: 1, Queue: []byte("q"), Name: []byte("n"), Workload: workload})
		sealBatch(batch, &meta{group: before.group + 1, previous: before.group, epoch: before.epoch + 1, maxSeq: 5000, records: 1, prevSynced: true}, 1)
		return batch
	}
	copy(workload, "here it begins")
	begins := bytes.Index(group(), []byte("here it begins")) + format2Head
	clear(workload)
	copy(workload[logPage-begins:], second)
	for record := group(); len(record) > 0; {
		n := min(logBlock-len(log)%logBlock-format2Head, len(record))
		kind := middleChunk
		switch first, last := len(log) == 0, n == len(record); {
		case first && last:
			kind = fullChunk
		case first:
			kind = firstChunk
		case last:
			kind = lastChunk
		}
		chunk := format2Record(nil, number, record[:n])
		chunk[6] = byte(kind + format2Kinds)
		sum := crc32.Checksum(chunk[6:], castagnoli)
		binary.LittleEndian.PutUint32(chunk, (sum>>15|sum<<17)+0xa282ead8)
		log, record = append(log, chunk...), record[n:]
	}
	return log
}

// TestFormat2Unnamed checks that a repair finds all jobs of a format 2 directory with a damaged
// FORMAT file.
func TestFormat2Unnamed(t *testing.T) {
	m, want := format2(t, "killed")
	for _, text := range []string{"treadle journal ?\n", "treadle journal 3\n"} {
		disk := m.with(formatFile, []byte(text)).disk(t)
		if _, err := reopen(disk); err == nil || !strings.Contains(err.Error(), "treadle journal check") {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := Repair(testDir, disk); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, err := reopen(disk); err != nil || !got.equal(want) {
			t.Errorf("%q: %v, %s", text, err, got.diff(want))
		}
	}
}
