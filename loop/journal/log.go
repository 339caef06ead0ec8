package journal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A log begins with two copies of its head, each in a page of its own, so that a lost page leaves
// the other. A copy holds the magic, the log's number in eight bytes, its key in sixteen and a
// CRC-32C over these, little-endian.
//
// Chunks follow in blocks of 32 KiB. A chunk's head holds a tag in eight bytes, the payload's
// length twice in two bytes each, and the kind in one. The tag is a GMAC under the log's key over
// the second length, the kind and the payload; its nonce is the log's number and the chunk's
// offset. The key is random and never leaves the file, so neither a client's bytes nor the file's
// earlier contents can pass for a chunk of this log. When the second length is damaged, the first
// one locates the next chunk.
//
// A record is one full chunk, or a first chunk, any number of middle chunks and a last chunk. When
// a block has no room for another head, its last bytes mean nothing. Zeros follow the last chunk
// written, where the next head will be. A full log ends with a chunk of kind logEnd.
const (
	logMagic    = "treadle log 3\n"
	logKeySize  = 16
	logHeadSize = len(logMagic) + 8 + logKeySize + 4
	logPage     = 4 << 10
	logStart    = 2 * logPage // offset of the first chunk
	logBlock    = 32 << 10

	tagSize   = 8
	sealedAt  = tagSize + 2 // offset in a chunk of the bytes that the tag covers
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

// logKey computes the tags of one log. One goroutine may use it.
type logKey struct {
	aead  cipher.AEAD
	nonce [12]byte
	out   [16]byte // reused
}

// newLogKey returns the key that seals the chunks of the log of a number.
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

// tag returns the tag of the chunk at offset at; sealed is the chunk from sealedAt on. The tag is
// valid until the next call.
func (k *logKey) tag(at int64, sealed []byte) []byte {
	binary.LittleEndian.PutUint64(k.nonce[4:], uint64(at))
	return k.aead.Seal(k.out[:0], k.nonce[:], nil, sealed)[:tagSize]
}

// appendHead appends both copies of a log's head and pads up to the first chunk.
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

// parseHead reads the key of log number from the first good copy of the head.
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
	return nil, errors.New("its head cannot be read")
}

// logWriter appends groups to a sequence of log files. Only the committer uses it.
//
// An applied log's file is reused: its blocks are allocated, so a sync writes data only. retire
// clears the places of chunk heads; the other old bytes remain and are under another key.
type logWriter struct {
	fs         vfs.FS // a failFS
	dir        string
	limit      int64 // the size of a full log
	number     uint64
	file       vfs.File // nil: no log is open
	key        *logKey
	size       int64
	midGroup   bool   // the last batch is not its group's last part, so the log cannot end here
	dirty      bool   // the file has unsynced writes
	batchBytes int64  // bytes of batches in the log
	highest    uint64 // of a Replica: the highest index of an entry in the log
	chunks     []byte // reused
	full       chan fullLog
	spares     chan string // files to reuse, from the checkpointer
	onStall    func(why string)
}

// groupLog is where the committer appends groups. Only the committer uses it.
type groupLog interface {
	// append appends a batch, which is a group or a part of one. more reports whether another part follows. It returns
	// early when failed is closed.
	append(batch []byte, more bool, failed <-chan struct{}) error
	// sync makes all appended batches durable.
	sync() error
	// unsynced reports whether a batch was appended after the last sync.
	unsynced() bool
	// cut ends the open file before it is full.
	cut(failed <-chan struct{}) error
	// close syncs, and closes the open file.
	close() error
}

// fullLog is a closed log for the checkpointer.
type fullLog struct {
	name       string // empty: only copy counts
	batchBytes int64  // bytes of batches in it
	copy       *copyRequest
}

// maxWaitingLogs is how many full logs may wait for the checkpointer. With one more the committer
// waits.
const maxWaitingLogs = 1

// newLogWriter returns a writer whose first log follows log number.
func newLogWriter(f vfs.FS, dir string, o *Options, number uint64, stall func(string)) *logWriter {
	return &logWriter{
		fs: f, dir: dir, limit: logStart + o.LogSize, number: number, onStall: stall,
		full: make(chan fullLog, maxWaitingLogs), spares: make(chan string, 1),
	}
}

// append writes a batch, which is a group or a part of one. more reports whether another part follows.
// A write error also trips the file system.
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
	var zeros [chunkHead]byte // the zeros after the last chunk, see logMagic
	l.chunks = append(l.chunks, zeros[:min(chunkHead, roomInBlock(l.size+int64(n)))]...)
	l.dirty = true
	if _, err := l.file.WriteAt(l.chunks, l.size); err != nil {
		return err
	}
	l.size, l.batchBytes = l.size+int64(n), l.batchBytes+int64(len(batch))
	if cap(l.chunks) > 4*defaultBatchSize {
		l.chunks = nil
	}
	return nil
}

// cut ends the open log before it is full.
func (l *logWriter) cut(failed <-chan struct{}) error {
	if l.file == nil {
		return nil
	}
	if l.size < l.limit { // a full log already has its end chunk
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

func (l *logWriter) unsynced() bool { return l.dirty }

// sync syncs all writes.
func (l *logWriter) sync() error {
	if !l.dirty {
		return nil
	}
	l.dirty = false
	return l.file.SyncData()
}

// open creates the next log, from a spare file if there is one. It syncs the head before the first
// chunk, because a log without a head holds nothing.
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
	// The zeros after the head are the place of the first chunk.
	head := append(appendHead(nil, l.number, key[:]), make([]byte, chunkHead)...)
	if _, err := l.file.WriteAt(head, 0); err != nil {
		return err
	}
	l.size, l.batchBytes = logStart, 0
	return firstError(l.file.Sync(), l.syncDir())
}

func (l *logWriter) syncDir() error { return syncDir(l.fs, l.dir) }

// finish closes a full log and passes it to the checkpointer.
func (l *logWriter) finish(failed <-chan struct{}) error {
	err := l.close()
	l.pass(fullLog{name: logName(l.number), batchBytes: l.batchBytes}, failed)
	return err
}

// pass passes a closed log to the checkpointer. It waits while that one is behind.
func (l *logWriter) pass(full fullLog, failed <-chan struct{}) {
	select {
	case l.full <- full:
		return
	default:
	}
	l.onStall("full logs wait to be brought into the store")
	select {
	case l.full <- full:
	case <-failed:
	}
}

// close syncs and closes the open log, if any.
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

// appendRecord appends to dst the chunks of a record. dst begins at offset at of the log.
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

// appendChunk appends one chunk, which must fit the block, to dst.
func (k *logKey) appendChunk(dst []byte, at int64, kind byte, payload []byte) []byte {
	head := len(dst)
	dst = append(dst, make([]byte, tagSize)...)
	low, high := byte(len(payload)), byte(len(payload)>>8)
	dst = append(dst, low, high, low, high, kind)
	dst = append(dst, payload...)
	copy(dst[head:], k.tag(at+int64(head), dst[head+sealedAt:]))
	return dst
}

// roomInBlock returns how many bytes the block has left at offset at.
func roomInBlock(at int64) int { return logBlock - int(at%logBlock) }

// padBlock fills a block that has no room for another chunk's head.
func padBlock(dst []byte, at int64) []byte {
	if left := roomInBlock(at + int64(len(dst))); left < chunkHead {
		dst = append(dst, make([]byte, left)...)
	}
	return dst
}
