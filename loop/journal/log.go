package journal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A log begins with its head, twice, each copy in a page of its own, so that a page that is
// lost leaves the other. A copy is the magic, the log's number in eight bytes, its key in
// sixteen and a CRC-32C over these, little-endian.
//
// Behind the head are chunks in blocks of 32 KiB. A chunk has a tag of eight bytes, its
// length twice in two bytes each, and its kind in one. The tag is a GMAC under the log's key
// over the second length, the kind and the payload, with the log's number and the chunk's
// offset as nonce. The key is drawn when the log is made and never leaves the file, so
// nothing that a client sends, and nothing that the file held before, can be taken for a
// chunk of this log. The first length tells where the next chunk begins when the second one
// is damaged.
//
// A record is a full chunk or a first one, any number of middle ones and a last one. A block
// without room for another chunk's head ends in any bytes. What was written last is followed
// by zeros where the next chunk would begin; a full log ends with a chunk of the kind logEnd.
const (
	logMagic    = "treadle log 3\n"
	logKeySize  = 16
	logHeadSize = len(logMagic) + 8 + logKeySize + 4
	logPage     = 4 << 10
	logStart    = 2 * logPage // the first chunk's offset
	logBlock    = 32 << 10

	tagSize   = 8
	sealedAt  = tagSize + 2 // where in a chunk begins what the tag is over
	chunkHead = sealedAt + 2 + 1
)

// The kinds of chunks.
const (
	fullChunk = 1 + iota
	firstChunk
	middleChunk
	lastChunk
	logEnd
)

// logKey makes and checks the tags of one log's chunks. It is one goroutine's.
type logKey struct {
	aead  cipher.AEAD
	nonce [12]byte
	out   [16]byte // reused
}

func newLogKey(number uint64, key []byte) (*logKey, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	k := &logKey{aead: aead}
	binary.LittleEndian.PutUint32(k.nonce[:], uint32(number))
	return k, nil
}

// tag is the tag of the chunk at an offset, of which sealed is all from sealedAt on. It is
// valid until the next call.
func (k *logKey) tag(at int64, sealed []byte) []byte {
	binary.LittleEndian.PutUint64(k.nonce[4:], uint64(at))
	return k.aead.Seal(k.out[:0], k.nonce[:], nil, sealed)[:tagSize]
}

// appendHead appends both copies of a log's head, up to the first chunk.
func appendHead(dst []byte, number uint64, key []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, logStart)...)
	for _, copyAt := range [...]int{at, at + logPage} {
		b := append(dst[copyAt:copyAt], logMagic...)
		b = binary.LittleEndian.AppendUint64(b, number)
		b = append(b, key...)
		binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	}
	return dst
}

// parseHead reads the key of log number from whichever copy of the head is good.
func parseHead(b []byte, number uint64) (*logKey, error) {
	for _, at := range [...]int{0, logPage} {
		if len(b) < at+logHeadSize {
			break
		}
		h := b[at : at+logHeadSize]
		sum := logHeadSize - 4
		fields := h[len(logMagic):sum]
		if string(h[:len(logMagic)]) != logMagic || crc32.Checksum(h[:sum], castagnoli) != binary.LittleEndian.Uint32(h[sum:]) {
			continue
		}
		if n := binary.LittleEndian.Uint64(fields); n != number {
			return nil, fmt.Errorf("its head says that it is log %d", n)
		}
		return newLogKey(number, fields[8:])
	}
	return nil, fmt.Errorf("its head cannot be read")
}

// logWriter appends groups to logs, one file after the other. It is the committer's own.
//
// A log that has been checkpointed is used again: its blocks are on the disk already, so
// that a sync has nothing to write but the data. retire clears where chunks may begin; the
// rest of what it held stays, and is under another key.
type logWriter struct {
	fs         vfs.FS // guarded
	dir        string
	limit      int64 // the size with which a log is full
	number     uint64
	file       vfs.File // nil: none is in use
	key        *logKey
	size       int64
	midGroup   bool   // a group has begun and lacks parts: the log cannot end here
	dirty      bool   // something is written and not synced
	batchBytes int64  // bytes of batches in the log
	chunks     []byte // reused
	full       chan fullLog
	spares     chan string // logs that may be used again, from the checkpointer
	onStall    func(why string)
}

// fullLog is a log that is closed, on its way to the checkpointer.
type fullLog struct {
	name       string
	batchBytes int64 // bytes of batches in it
}

// waitingLogs is how many full logs may wait for the checkpointer before the committer does.
const maxWaitingLogs = 1

// newLogWriter begins behind the log with that number.
func newLogWriter(f vfs.FS, dir string, o *Options, number uint64, stall func(string)) *logWriter {
	return &logWriter{
		fs: f, dir: dir, limit: logStart + o.LogSize, number: number, onStall: stall,
		full: make(chan fullLog, maxWaitingLogs), spares: make(chan string, 1),
	}
}

// append writes a batch, which is a group or a part of one; more says that another part
// follows. The guard knows whether that went well.
func (l *logWriter) append(batch []byte, more bool, failed <-chan struct{}) error {
	if l.file != nil && l.size >= l.limit && !l.midGroup {
		if err := l.finish(failed); err != nil {
			return err
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	l.midGroup = more
	l.chunks = l.key.appendRecord(l.chunks[:0], l.size, batch)
	if !more && l.size+int64(len(l.chunks)) >= l.limit {
		l.chunks = l.key.appendChunk(padBlock(l.chunks, l.size), l.size, logEnd, nil)
	}
	n := len(l.chunks)
	var zeros [chunkHead]byte // the next chunk's place, see the comment on the form
	l.chunks = append(l.chunks, zeros[:min(chunkHead, roomInBlock(l.size+int64(n)))]...)
	l.dirty = true
	if _, err := l.file.WriteAt(l.chunks, l.size); err != nil {
		return err
	}
	l.size, l.batchBytes = l.size+int64(n), l.batchBytes+int64(len(batch))
	if cap(l.chunks) > 4*maxBatch {
		l.chunks = nil
	}
	return nil
}

// cut ends the log in use, if there is one, before it is full.
func (l *logWriter) cut(failed <-chan struct{}) error {
	if l.file == nil {
		return nil
	}
	if l.size < l.limit { // else it has its end
		end := l.key.appendChunk(padBlock(nil, l.size), l.size, logEnd, nil)
		if _, err := l.file.WriteAt(end, l.size); err != nil {
			return err
		}
		if err := l.file.Sync(); err != nil {
			return err
		}
		l.dirty = false
	}
	return l.finish(failed)
}

// sync has everything on the disk that was written.
func (l *logWriter) sync() error {
	if !l.dirty {
		return nil
	}
	l.dirty = false
	return l.file.SyncData()
}

// open makes the next log, from one that may be used again if there is one. Its head is on
// the disk before anything else: a log without one holds nothing.
func (l *logWriter) open() (err error) {
	l.number++
	name := l.fs.PathJoin(l.dir, logName(l.number))
	select {
	case spare := <-l.spares:
		l.file, err = l.fs.ReuseForWrite(l.fs.PathJoin(l.dir, spare), name, vfs.WriteCategoryUnspecified)
	default:
		l.file, err = l.fs.Create(name, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return err
	}
	var key [logKeySize]byte
	_, _ = rand.Read(key[:]) // it never fails
	if l.key, err = newLogKey(l.number, key[:]); err != nil {
		return err
	}
	// The zeros behind it are the first chunk's place.
	head := append(appendHead(nil, l.number, key[:]), make([]byte, chunkHead)...)
	if _, err := l.file.WriteAt(head, 0); err != nil {
		return err
	}
	l.size, l.batchBytes = logStart, 0
	return firstError(l.file.Sync(), l.syncDir())
}

func (l *logWriter) syncDir() error { return syncDir(l.fs, l.dir) }

// finish closes a full log and hands it to the checkpointer.
func (l *logWriter) finish(failed <-chan struct{}) error {
	err := l.close()
	full := fullLog{logName(l.number), l.batchBytes}
	select {
	case l.full <- full:
		return err
	default:
	}
	l.onStall("full logs wait to be brought into the store")
	select {
	case l.full <- full:
	case <-failed:
	}
	return err
}

// close syncs what is not synced and closes the log in use, if there is one.
func (l *logWriter) close() (err error) {
	if l.file == nil {
		return nil
	}
	if l.dirty {
		err = l.sync()
	}
	err = firstError(err, l.file.Close())
	l.file = nil
	return err
}

func logName(number uint64) string { return fmt.Sprintf("%06d%s", number, logSuffix) }

// appendRecord appends a record's chunks to dst, which is written to the log at the offset
// at.
func (k *logKey) appendRecord(dst []byte, at int64, record []byte) []byte {
	for kind, rest := byte(fullChunk), record; ; {
		dst = padBlock(dst, at)
		n := min(roomInBlock(at+int64(len(dst)))-chunkHead, len(rest))
		switch last := n == len(rest); {
		case kind == fullChunk && !last:
			kind = firstChunk
		case kind != fullChunk && last:
			kind = lastChunk
		case kind == firstChunk:
			kind = middleChunk
		}
		dst = k.appendChunk(dst, at, kind, rest[:n])
		if rest = rest[n:]; len(rest) == 0 {
			return dst
		}
	}
}

// appendChunk appends one chunk, which fits the block, to dst.
func (k *logKey) appendChunk(dst []byte, at int64, kind byte, payload []byte) []byte {
	head := len(dst)
	dst = append(dst, make([]byte, tagSize)...)
	low, high := byte(len(payload)), byte(len(payload)>>8)
	dst = append(dst, low, high, low, high, kind)
	dst = append(dst, payload...)
	copy(dst[head:], k.tag(at+int64(head), dst[head+sealedAt:]))
	return dst
}

// roomInBlock is how many bytes of the block are left at an offset.
func roomInBlock(at int64) int { return logBlock - int(at%logBlock) }

// padBlock ends a block that has no room for another chunk's head.
func padBlock(dst []byte, at int64) []byte {
	if left := roomInBlock(at + int64(len(dst))); left < chunkHead {
		dst = append(dst, make([]byte, left)...)
	}
	return dst
}
