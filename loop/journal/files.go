package journal

import (
	"bytes"
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeWhole creates a file under a temporary name, syncs it and renames it, so the file is
// complete or absent.
func writeWhole(f vfs.FS, name, text string) error {
	file, err := f.Create(name+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	n, err := file.Write([]byte(text))
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	dir := f.PathDir(name)
	if err := syncDir(f, dir); err != nil {
		return err
	}
	if err := f.Rename(name+".tmp", name); err != nil {
		return err
	}
	return syncDir(f, dir)
}

// readFile returns the content of a file.
func readFile(f vfs.FS, name string) ([]byte, error) {
	file, err := f.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	_, err = b.ReadFrom(file)
	return b.Bytes(), err
}

// makeDir makes dir and syncs every parent directory that it changed.
func makeDir(f vfs.FS, dir string) error {
	var made []string
	for at := dir; ; at = f.PathDir(at) {
		ok, err := exists(f, at)
		if err != nil {
			return err
		}
		if ok || f.PathDir(at) == at {
			break
		}
		made = append(made, f.PathDir(at))
	}
	if err := f.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range made {
		if err := syncDir(f, parent); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(f vfs.FS, dir string) error {
	d, err := f.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func exists(f vfs.FS, name string) (bool, error) {
	_, err := f.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// treeSize returns the sum of the sizes of the readable files below dir.
func treeSize(f vfs.FS, dir string) uint64 {
	names, err := f.List(dir)
	if err != nil {
		return 0
	}
	var n uint64
	for _, name := range names {
		name = f.PathJoin(dir, name)
		switch info, err := f.Stat(name); {
		case err != nil:
		case info.IsDir():
			n += treeSize(f, name)
		default:
			n += uint64(info.Size())
		}
	}
	return n
}
