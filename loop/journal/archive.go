package journal

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// archiveFS is a file system with the store of a backup in the root, under the name store. It is read-only.
type archiveFS struct {
	readOnlyFS
	from  io.ReaderAt
	files map[string]archived // by their paths in the archive
}

// archived is where a file is in an archive.
type archived struct{ at, size int64 }

// openArchive lists the files of an archive, and reads its manifest, which is the last one.
func openArchive(from io.ReaderAt, size int64) (*archiveFS, *BackupManifest, error) {
	a := &archiveFS{readOnlyFS{vfs.NewMem()}, from, make(map[string]archived)}
	in := io.NewSectionReader(from, 0, size)
	for archive := tar.NewReader(in); ; {
		head, err := archive.Next()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("it is cut, or no backup of treadle: its last file, %s, is missing", manifestName)
			}
			return nil, nil, err
		}
		at, _ := in.Seek(0, io.SeekCurrent) // it cannot fail
		if head.Name == manifestName {
			text, err := io.ReadAll(io.LimitReader(archive, maxManifest))
			if err != nil {
				return nil, nil, err
			}
			m, err := parseManifest(text)
			return a, m, err
		}
		if _, twice := a.files[head.Name]; twice || head.Typeflag != tar.TypeReg || path.Dir(head.Name) != storeName {
			return nil, nil, fmt.Errorf("no backup of treadle has the file %.100q there", head.Name)
		}
		a.files[head.Name] = archived{at, head.Size}
	}
}

// Open implements vfs.FS.
func (a *archiveFS) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	f, ok := a.files[name]
	if !ok {
		return nil, notArchived("open", name)
	}
	return &archivedFile{SectionReader: io.NewSectionReader(a.from, f.at, f.size), info: archivedInfo{path.Base(name), f.size}}, nil
}

// OpenDir implements vfs.FS.
func (a *archiveFS) OpenDir(name string) (vfs.File, error) {
	return &archivedFile{info: archivedInfo{name, -1}}, nil
}

// List implements vfs.FS.
func (a *archiveFS) List(dir string) (names []string, err error) {
	for name := range a.files {
		if path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	if names == nil {
		return nil, notArchived("list", dir)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements vfs.FS.
func (a *archiveFS) Stat(name string) (vfs.FileInfo, error) {
	if f, ok := a.files[name]; ok {
		return archivedInfo{path.Base(name), f.size}, nil
	}
	if name == storeName || name == "" {
		return archivedInfo{name, -1}, nil
	}
	return nil, notArchived("stat", name)
}

func notArchived(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// archivedFile is a file, or directory, of an archive.
type archivedFile struct {
	vfs.File // nil: nothing writes
	*io.SectionReader
	info archivedInfo
}

func (f *archivedFile) Read(p []byte) (int, error)             { return f.SectionReader.Read(p) }
func (f *archivedFile) ReadAt(p []byte, at int64) (int, error) { return f.SectionReader.ReadAt(p, at) }
func (f *archivedFile) Stat() (vfs.FileInfo, error)            { return f.info, nil }
func (f *archivedFile) Prefetch(int64, int64) error            { return nil }
func (f *archivedFile) Sync() error                            { return nil }
func (f *archivedFile) Close() error                           { return nil }
func (f *archivedFile) Fd() uintptr                            { return vfs.InvalidFd }

// archivedInfo describes a file of an archive; size -1: a directory.
type archivedInfo struct {
	name string
	size int64
}

func (i archivedInfo) Name() string           { return i.name }
func (i archivedInfo) Size() int64            { return max(i.size, 0) }
func (i archivedInfo) ModTime() time.Time     { return time.Time{} }
func (i archivedInfo) IsDir() bool            { return i.size < 0 }
func (i archivedInfo) Sys() any               { return nil }
func (i archivedInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
func (i archivedInfo) Mode() fs.FileMode {
	if i.IsDir() {
		return fs.ModeDir | 0o500
	}
	return 0o400
}
