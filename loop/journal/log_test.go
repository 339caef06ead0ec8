package journal

import (
	"bytes"
	"path"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// testLog builds a log of a given number, under a fixed key.
type testLog struct {
	key    *logKey
	number uint64
	b      []byte
}

func newTestLog(tb testTB, number uint64) *testLog {
	tb.Helper()
	secret := bytes.Repeat([]byte{byte(number)}, logKeySize)
	key, err := newLogKey(number, secret)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return &testLog{key: key, number: number, b: appendHead(nil, number, secret)}
}

// add appends a record and returns its end.
func (l *testLog) add(record []byte) (end int64) {
	l.b = l.key.appendRecord(l.b, 0, record)
	return int64(len(l.b))
}

// end appends the end mark of a full log.
func (l *testLog) end() []byte {
	l.b = l.key.appendChunk(padBlock(l.b, 0), 0, logEnd, nil)
	return l.b
}

// completeLog builds a log of a given number with another log's records.
func completeLog(tb testTB, number uint64, parts []logPart) []byte {
	tb.Helper()
	l := newTestLog(tb, number)
	for _, p := range parts {
		l.add(p.data)
	}
	return l.end()
}

// parts divides a file of the framing into its parts.
func (f *framing) parts(tb testTB, b []byte) (parts []logPart, closed bool) {
	tb.Helper()
	closed, err := f.scan(bytes.NewReader(b), int64(len(b)), func(p logPart) error {
		p.data = bytes.Clone(p.data)
		parts = append(parts, p)
		return nil
	})
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return parts, closed
}

// mustScan reads the log with that name.
func mustScan(tb testTB, name string, b []byte) []logPart {
	tb.Helper()
	key, err := parseHead(b, fileNumber(path.Base(name)))
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	parts, _ := key.framing().parts(tb, b)
	return parts
}

// TestLogChunks checks that records of any size, written over the file's earlier contents, are read
// back with their offsets, and nothing else is.
func TestLogChunks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Sizes near a block's put heads at every offset near its end.
		size := rapid.OneOf(rapid.IntRange(0, 60), rapid.IntRange(logBlock-60, logBlock+20), rapid.IntRange(0, 3*logBlock))
		fill := func(l *testLog, n int) (records [][]byte, ends []int64) {
			for i := range n {
				r := bytes.Repeat([]byte{byte(i), byte(l.number)}, (size.Draw(t, "size")+1)/2)
				records = append(records, r)
				ends = append(ends, l.add(r))
			}
			return records, ends
		}
		old, log := newTestLog(t, 7), newTestLog(t, 9)
		fill(old, 6)
		records, ends := fill(log, rapid.IntRange(1, 6).Draw(t, "records"))
		full := rapid.Bool().Draw(t, "full")
		b := log.b
		if full {
			b = log.end()
		} else {
			b = append(b, make([]byte, min(chunkHead, roomInBlock(int64(len(b)))))...)
		}
		stale := old.b
		for at := logBlock; at < len(stale); at += logBlock {
			clear(stale[at:min(at+chunkHead, len(stale))])
		}
		b = append(b, stale[min(len(b), len(stale)):]...)
		parts, closed := log.key.framing().parts(t, b)
		if closed != full {
			t.Fatalf("closed: %v", closed)
		}
		if len(parts) != len(records) {
			t.Fatalf("%d records instead of %d", len(parts), len(records))
		}
		for i, p := range parts {
			if !p.whole || p.end != ends[i] || !bytes.Equal(p.data, records[i]) {
				t.Fatalf("record %d, of %d bytes: %d bytes, whole: %v, end %d instead of %d", i, len(records[i]), len(p.data), p.whole, p.end, ends[i])
			}
		}
	})
}

// TestCommitsWaitForCheckpoints checks that commits wait when checkpoints are too slow, so that
// logs do not fill the disk, and that a failure ends the wait.
func TestCommitsWaitForCheckpoints(t *testing.T) {
	for _, fails := range []bool{false, true} {
		f := &slowSync{FS: vfs.NewCrashableMem()}
		o := testOptions(f)
		o.LogSize = 1 // every group fills a log
		d := mustOpen(t, o)
		d.quiet()
		f.tables.Lock() // no table is written
		for i := range 10 {
			d.create(10)
			before := d.j.Stats().Groups
			d.j.Flush(1)
			if d.awaitStats(func(s Stats) bool { return s.Groups > before || s.Stalls > 0 }).Stalls > 0 {
				break
			}
			if i == 0 { // later commits would wait for the checkpoint
				poll(t, "no checkpoint begins", func() bool { return len(d.j.files.full) == 0 })
			}
		}
		s := d.j.Stats()
		if logs := len(imageOf(t, f.FS.(*vfs.MemFS)).logs()); s.Stalls != 1 || logs > 2+maxWaitingLogs || d.j.Committed() >= d.changes[len(d.changes)-1].group {
			t.Fatalf("%d logs, %+v", logs, s)
		}
		if fails {
			d.j.disk.trip(errNotGroup)
			<-d.j.disk.down
		}
		f.tables.Unlock()
		if d.wait() == fails {
			t.Fatalf("fails: %v, and committed: %v", fails, !fails)
		}
		if err := d.j.Close(); (err != nil) != fails {
			t.Fatal(err)
		}
	}
}

// TestLogEmptyFirstChunk checks that a record whose first chunk is empty, because its block has
// room for a chunk's head only, is read.
func TestLogEmptyFirstChunk(t *testing.T) {
	l := newTestLog(t, 3)
	l.add(bytes.Repeat([]byte{1}, logBlock-logStart-2*chunkHead))
	l.add([]byte("another"))
	parts := mustScan(t, logName(3), l.b)
	if len(parts) != 2 || !parts[0].whole || !parts[1].whole || parts[1].offset != logBlock-chunkHead || string(parts[1].data) != "another" {
		t.Errorf("%v", parts)
	}
}
