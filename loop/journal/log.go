package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logWriter appends groups to logs, one file after the other. It is the committer's own.
//
// A log that has been checkpointed is used again: its blocks are on the disk already, so
// that a sync has nothing to write but the data. What it held stands behind what it holds
// then, which the scanner tells apart by the log's number.
type logWriter struct {
	fs     vfs.FS // guarded
	dir    string
	limit  int64 // the size with which a log is full
	number uint64
	file   vfs.File // nil: none is in use
	size   int64
	chunks []byte      // reused
	full   chan string // logs that are closed, to the checkpointer
	spares chan string // logs that may be used again, from the checkpointer
	stall  func(why string)
}

// waitingLogs is how many full logs may wait for the checkpointer before the committer does.
const waitingLogs = 1

// newLogWriter begins behind the log with that number.
func newLogWriter(f vfs.FS, dir string, limit int64, number uint64, stall func(string)) *logWriter {
	return &logWriter{
		fs: f, dir: dir, limit: limit, number: number, stall: stall,
		full: make(chan string, waitingLogs), spares: make(chan string, 1),
	}
}

// append writes a batch and syncs it. The guard knows whether that went well.
func (l *logWriter) append(batch []byte, failed <-chan struct{}) error {
	if l.file != nil && l.size >= l.limit {
		if err := l.finish(failed); err != nil {
			return err
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	l.chunks = appendRecordChunks(l.chunks[:0], l.size, l.number, batch)
	if l.size+int64(len(l.chunks)) >= l.limit {
		l.chunks = appendLogEnd(l.chunks, l.size, l.number)
	}
	n, err := l.file.Write(l.chunks)
	if err != nil {
		return err
	}
	l.size += int64(n)
	if cap(l.chunks) > 4*maxBatch {
		l.chunks = nil
	}
	return l.file.SyncData()
}

// open makes the next log, from one that may be used again if there is one.
func (l *logWriter) open() (err error) {
	l.number++
	name := l.fs.PathJoin(l.dir, logName(l.number))
	select {
	case spare := <-l.spares:
		l.file, err = l.fs.ReuseForWrite(l.fs.PathJoin(l.dir, spare), name, vfs.WriteCategoryUnspecified)
	default:
		l.file, err = l.fs.Create(name, vfs.WriteCategoryUnspecified)
	}
	l.size = 0
	return first(err, l.syncDir())
}

func (l *logWriter) syncDir() error { return syncDir(l.fs, l.dir) }

// finish closes a full log and hands it to the checkpointer.
func (l *logWriter) finish(failed <-chan struct{}) error {
	err := l.close()
	name := logName(l.number)
	select {
	case l.full <- name:
		return err
	default:
	}
	l.stall("full logs wait to be brought into the store")
	select {
	case l.full <- name:
	case <-failed:
	}
	return err
}

func (l *logWriter) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

func logName(number uint64) string { return fmt.Sprintf("%06d%s", number, logSuffix) }

// appendRecordChunks appends a record's chunks to dst, which is written to a log at the
// offset at.
func appendRecordChunks(dst []byte, at int64, number uint64, record []byte) []byte {
	for part, rest := fullChunk, record; ; {
		dst = padBlock(dst, at)
		room := logBlock - int(at+int64(len(dst)))%logBlock - logHead
		n := min(room, len(rest))
		switch last := n == len(rest); {
		case part == fullChunk && !last:
			part = firstChunk
		case part != fullChunk && last:
			part = lastChunk
		case part == firstChunk:
			part = middleChunk
		}
		head := len(dst)
		dst = append(dst, 0, 0, 0, 0, byte(n), byte(n>>8), byte(logKinds+part))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(number))
		dst = append(dst, rest[:n]...)
		binary.LittleEndian.PutUint32(dst[head:], chunkSum(dst[head+6:]))
		if rest = rest[n:]; len(rest) == 0 {
			return dst
		}
	}
}

// appendLogEnd appends what a full log ends with to dst, which is written to it at the
// offset at.
func appendLogEnd(dst []byte, at int64, number uint64) []byte {
	dst = padBlock(dst, at)
	dst = append(dst, 0, 0, 0, 0, 0, 0, logKinds)
	return binary.LittleEndian.AppendUint32(dst, uint32(number)+1)
}

// padBlock ends a block that has no room for another head.
func padBlock(dst []byte, at int64) []byte {
	if left := logBlock - int(at+int64(len(dst)))%logBlock; left < logHead {
		dst = append(dst, make([]byte, left)...)
	}
	return dst
}

// chunkSum is the sum over a chunk from its kind on.
func chunkSum(b []byte) uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}
