package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrBadBackup is wrapped by the error for a backup that is cut, altered, or none of treadle.
var ErrBadBackup = errors.New("the backup cannot be used")

func badBackup(err error) error { return fmt.Errorf("%w: %w", ErrBadBackup, err) }

// notAsManifest returns the error for contents that differ from the manifest.
func notAsManifest(what string) error {
	return fmt.Errorf("%w: it was altered, for it is not as its %s says: %s", ErrBadBackup, manifestName, what)
}

// ReadManifest returns what a backup of size bytes says that it holds.
func ReadManifest(from io.ReaderAt, size int64) (*BackupManifest, error) {
	_, m, err := openArchive(from, size)
	if err != nil {
		return nil, badBackup(err)
	}
	return m, nil
}

// VerifyBackup reads a backup of size bytes as a restore would. It compares the files with the manifest, and checks the
// store that they are as Check does. progress may be nil; it is called with the bytes that were compared.
func VerifyBackup(from io.ReaderAt, size int64, progress func(done, total int64)) (*BackupManifest, error) {
	a, m, err := openArchive(from, size)
	if err != nil {
		return nil, badBackup(err)
	}
	err = a.eachFile(m, func(f *BackupFile, in io.Reader) error { return compare(f, io.Discard, in) }, progress)
	if err != nil {
		return nil, err
	}
	d := &dataDir{fs: a, lock: io.NopCloser(nil), name: storeName}
	r, s, err := d.check(nil)
	if err == nil {
		err = d.count(s, &r)
	}
	switch {
	case err != nil:
	case len(r.Damage) > 0:
		err = badBackup(fmt.Errorf("the store in it is damaged: %v", r.Damage[0]))
	case r.Group != m.Group || r.Jobs != m.Records:
		err = notAsManifest(fmt.Sprintf("it has %d records up to group %d", r.Jobs, r.Group))
	}
	return m, err
}

// eachFile calls use with the files of the manifest. It returns an error if the archive has others.
func (a *archiveFS) eachFile(m *BackupManifest, use func(f *BackupFile, in io.Reader) error, progress func(done, total int64)) error {
	names := make(map[string]bool)
	for i := range m.Files {
		f := &m.Files[i]
		name := path.Join(storeName, f.Name)
		in, ok := a.files[name]
		if !ok || in.size != f.Size || names[name] {
			return notAsManifest(fmt.Sprintf("the file %.100q is missing, or has another size", name))
		}
		names[name] = true
	}
	for name := range a.files {
		if !names[name] {
			return notAsManifest(fmt.Sprintf("the file %.100q is too many", name))
		}
	}
	var done int64
	for i := range m.Files {
		f := &m.Files[i]
		in := a.files[path.Join(storeName, f.Name)]
		if err := use(f, io.NewSectionReader(a.from, in.at, in.size)); err != nil {
			return err
		}
		if done += f.Size; progress != nil {
			progress(done, m.Size())
		}
	}
	return nil
}

// compare copies a file of a backup, and returns an error if it has not the checksum of the manifest.
func compare(f *BackupFile, to io.Writer, in io.Reader) error {
	sum := sha256.New() // it comes first: with the invariants tag the store's file systems spoil what they have written
	if _, err := io.Copy(io.MultiWriter(sum, to), in); err != nil {
		return fmt.Errorf("cannot copy %s: %w", f.Name, cause(err))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		return notAsManifest(fmt.Sprintf("the file %.100q has the SHA-256 %s", f.Name, got))
	}
	return nil
}

// Restore makes a data directory from a backup of size bytes, which it verifies first. The directory must be missing or
// empty. It has no store, or the whole one: a server that is killed meanwhile leaves nothing that can be mistaken for a
// store. A nil f is the disk; progress may be nil.
func Restore(from io.ReaderAt, size int64, dir string, f vfs.FS, progress func(done, total int64)) (m *BackupManifest, err error) {
	if _, err := VerifyBackup(from, size, nil); err != nil {
		return nil, err
	}
	a, m, err := openArchive(from, size)
	if err != nil {
		return nil, badBackup(err)
	}
	d, err := lockDataDir(orDefaultFS(f), dir, true)
	if err != nil {
		return nil, err
	}
	if err = d.needEmpty(); err == nil {
		if err = d.restore(a, m, progress); err != nil {
			err = errors.Join(fmt.Errorf("cannot restore into %q: %w", dir, err), d.fs.RemoveAll(d.path(newName)))
		}
	}
	return m, errors.Join(err, d.close())
}

// needEmpty returns an error unless the directory is empty but for what an interrupted restore has left.
func (d *dataDir) needEmpty() error {
	names, err := d.fs.List(d.root)
	if err != nil {
		return err
	}
	complete, err := exists(d.fs, d.fs.PathJoin(d.path(newName), formatName))
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains([]string{lockName, "lost+found", newName}, name) || name == newName && complete {
			return fmt.Errorf("the data directory %q is not empty: it has %.100q; name a new directory", d.root, name)
		}
	}
	return d.fs.RemoveAll(d.path(newName))
}

// restore copies the store out of a backup.
func (d *dataDir) restore(a *archiveFS, m *BackupManifest, progress func(done, total int64)) error {
	d.name = newName
	if err := makeDir(d.fs, d.store()); err != nil {
		return err
	}
	err := a.eachFile(m, func(f *BackupFile, in io.Reader) error {
		if f.Name == formatName { // the last one
			return nil
		}
		file, err := d.fs.Create(d.fs.PathJoin(d.store(), f.Name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		err = compare(f, file, in)
		return errors.Join(err, file.Sync(), file.Close())
	}, progress)
	if err != nil {
		return err
	}
	o := Options{Dir: d.root, FS: d.fs}
	if err := o.fill(); err != nil {
		return err
	}
	if err := firstError(d.forgetCluster(&o), writeWhole(d.fs, d.fs.PathJoin(d.store(), formatName), formatText(m.Format))); err != nil {
		return err
	}
	return d.rename(newName, storeName)
}
