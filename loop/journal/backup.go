package journal

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"time"
)

// A backup is a tar archive: the files of a complete store under store/, and at the end backup.json, a BackupManifest,
// which a backup that was cut lacks.
const (
	manifestName   = "backup.json"
	backupVersion  = 1
	maxManifest    = 64 << 20 // a store of a terabyte has a manifest of some megabytes
	backupFileMode = 0o600
)

// BackupManifest says what a backup holds.
type BackupManifest struct {
	Version int          `json:"treadle_backup"`
	Taken   time.Time    `json:"taken"`
	Format  int          `json:"format"`  // of the data directory
	Group   uint64       `json:"group"`   // the last one, see Stats.Committed
	Epoch   uint64       `json:"epoch"`   // of the opening that wrote it
	Records int64        `json:"records"` // jobs, and other records with a number
	Files   []BackupFile `json:"files"`
}

// BackupFile is a file of the store in a backup.
type BackupFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // in hexadecimal
}

// Size returns the size of the store.
func (m *BackupManifest) Size() (bytes int64) {
	for _, f := range m.Files {
		bytes += f.Size
	}
	return bytes
}

// ErrBackupRuns is the error of a backup that begins before another one has ended.
var ErrBackupRuns = errors.New("another backup is being taken: wait for its end")

// Backup is a backup that is being taken: a copy of the store as of one moment. It must be closed.
type Backup struct {
	*storeCopy
	manifest BackupManifest
	done     func()
}

// Backup copies the store, with every change that was appended before the call. The journal goes on meanwhile. There is
// one Backup at a time: ErrBackupRuns is the error of another.
func (j *Journal) Backup(now time.Time) (*Backup, error) {
	if !j.backup.TryLock() {
		return nil, ErrBackupRuns
	}
	c := j.copyNow()
	b := &Backup{storeCopy: c.files, done: j.backup.Unlock,
		manifest: BackupManifest{backupVersion, now.UTC(), presentFormat, c.meta.group, c.meta.epoch, c.meta.records, nil}}
	if c.err == nil {
		c.err = b.prepare()
	}
	if c.err != nil {
		return nil, errors.Join(c.err, b.Close())
	}
	return b, nil
}

// prepare completes the store that is copied, and lists its files.
func (b *Backup) prepare() error {
	if err := writeFormat(b.fs, b.dir); err != nil {
		return err
	}
	var err error
	if b.Files, err = b.fs.List(b.dir); err != nil {
		return err
	}
	slices.Sort(b.Files)
	for _, name := range b.Files {
		file, size, err := b.Open(name)
		if err != nil {
			return err
		}
		_ = file.Close() // it was not read
		b.manifest.Files = append(b.manifest.Files, BackupFile{name, size, strings.Repeat("0", 2*sha256.Size)})
	}
	return nil
}

// Close removes the copy.
func (b *Backup) Close() (err error) {
	if b.storeCopy != nil {
		err = b.storeCopy.Close()
	}
	b.done()
	return err
}

// Size returns the number of bytes that WriteTo writes.
func (b *Backup) Size() int64 {
	const block = 512
	padded := func(n int64) int64 { return block + (n+block-1)/block*block }
	n := int64(2 * block) // the end of an archive
	for _, f := range b.manifest.Files {
		n += padded(f.Size)
	}
	return n + padded(int64(len(b.manifest.encode())))
}

func (m *BackupManifest) encode() []byte {
	text, _ := json.MarshalIndent(m, "", "\t") // it has nothing that JSON has not
	return append(text, '\n')
}

// WriteTo writes the archive, and computes the checksums on the way.
func (b *Backup) WriteTo(w io.Writer) (int64, error) {
	counted := &countingWriter{to: w}
	archive := tar.NewWriter(counted)
	sum := sha256.New()
	for i := range b.manifest.Files {
		if err := b.writeFile(archive, &b.manifest.Files[i], sum); err != nil {
			return counted.n, err
		}
	}
	text := b.manifest.encode()
	err := archive.WriteHeader(b.header(manifestName, int64(len(text))))
	if err == nil {
		_, err = archive.Write(text)
	}
	return counted.n, firstError(err, archive.Close())
}

func (b *Backup) header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: backupFileMode, ModTime: b.manifest.Taken.Truncate(time.Second), Format: tar.FormatGNU}
}

// writeFile writes a file of the store to the archive, and sets its checksum.
func (b *Backup) writeFile(archive *tar.Writer, f *BackupFile, sum hash.Hash) error {
	file, _, err := b.Open(f.Name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	if err := archive.WriteHeader(b.header(storeName+"/"+f.Name, f.Size)); err != nil {
		return err
	}
	sum.Reset()
	if _, err := io.CopyN(io.MultiWriter(archive, sum), file, f.Size); err != nil {
		return fmt.Errorf("cannot read %s: %w", f.Name, cause(err))
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}

type countingWriter struct {
	to io.Writer
	n  int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.n += int64(n)
	return n, err
}

// parseManifest reads the last file of a backup.
func parseManifest(text []byte) (*BackupManifest, error) {
	var m BackupManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	switch {
	case m.Version != backupVersion:
		return nil, fmt.Errorf("the backup has version %d; this treadle reads version %d", m.Version, backupVersion)
	case m.Format < oldestFormat || m.Format > presentFormat:
		return nil, fmt.Errorf("the store in the backup has format %d; this treadle reads formats %d to %d", m.Format, oldestFormat, presentFormat)
	}
	return &m, nil
}
