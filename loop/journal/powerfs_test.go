package journal

import (
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// powerFS is a disk on which a loss of power leaves any subset of the unsynced sectors, each with
// the contents of any of its writes, and of each directory independently any prefix of its unsynced
// changes.
type powerFS struct {
	vfs.FS
	mu    sync.Mutex
	nodes map[string]*powerNode // as the process sees them
	dirs  map[string]*powerDir
	ops   int
	hook  func(op string) // called under mu before each change
}

// powerNode is the contents of a file.
type powerNode struct {
	durable, cur []byte
	pend         []powerWrite
}

type powerWrite struct {
	at   int
	data []byte
	size int // of the file after the write
}

type powerDir struct {
	durable map[string]*powerNode
	pend    []func(map[string]*powerNode)
}

func newPowerFS() *powerFS {
	return &powerFS{FS: vfs.NewMem(), nodes: map[string]*powerNode{}, dirs: map[string]*powerDir{}}
}

// powerOf returns a disk with the files of an image, synced.
func powerOf(m image) *powerFS {
	p := newPowerFS()
	mem := vfs.NewMem()
	for name, b := range m {
		_ = mem.MkdirAll(path.Dir(name), 0o755)
		f, _ := mem.Create(name, vfs.WriteCategoryUnspecified)
		_, _ = f.Write(slices.Clone(b))
		_ = f.Close()
		n := &powerNode{durable: slices.Clone(b), cur: slices.Clone(b)}
		p.nodes[name] = n
		p.dir(path.Dir(name)).durable[path.Base(name)] = n
	}
	p.FS = mem
	return p
}

func (p *powerFS) dir(name string) *powerDir {
	d := p.dirs[name]
	if d == nil {
		d = &powerDir{durable: map[string]*powerNode{}}
		p.dirs[name] = d
	}
	return d
}

// op announces a change.
func (p *powerFS) op(what string) {
	p.ops++
	if p.hook != nil {
		p.hook(what)
	}
}

// name gives a file a name, or removes the name when n is nil.
func (p *powerFS) name(name string, n *powerNode) {
	base := path.Base(name)
	d := p.dir(path.Dir(name))
	d.pend = append(d.pend, func(m map[string]*powerNode) {
		if n == nil {
			delete(m, base)
		} else {
			m[base] = n
		}
	})
	if n == nil {
		delete(p.nodes, name)
	} else {
		p.nodes[name] = n
	}
}

// sector is the disk's unit of writing.
const sector = 512

// crash returns the remaining contents of a file. chance is the percentage of sectors written.
func (n *powerNode) crash(r *rand.Rand, chance int) []byte {
	if len(n.pend) == 0 {
		return slices.Clone(n.durable)
	}
	size := len(n.cur)
	switch r.IntN(4) {
	case 0:
		size = len(n.durable)
	case 1:
		size = n.pend[r.IntN(len(n.pend))].size
	case 2:
		if lo, hi := min(len(n.durable), len(n.cur)), len(n.cur); hi > lo {
			size = lo + r.IntN(hi-lo)
		}
	}
	touch := map[int][]int{}
	for i, w := range n.pend {
		for s := w.at / sector; s*sector < w.at+len(w.data); s++ {
			touch[s] = append(touch[s], i)
		}
	}
	out := make([]byte, max(len(n.cur), len(n.durable)))
	copy(out, n.durable)
	for _, s := range slices.Sorted(maps.Keys(touch)) {
		ws := touch[s]
		k := 0
		switch {
		case r.IntN(100) < chance:
			k = len(ws)
		case r.IntN(3) == 0:
			k = r.IntN(len(ws) + 1)
		}
		for _, i := range ws[:k] {
			w := n.pend[i]
			from, to := max(s*sector, w.at), min((s+1)*sector, w.at+len(w.data))
			copy(out[from:to], w.data[from-w.at:to-w.at])
		}
	}
	return out[:size]
}

// crash returns what a loss of power leaves, where chance is the percentage of sectors written, or
// what a kill leaves, which is everything.
func (p *powerFS) crash(r *rand.Rand, chance int, kill bool) image {
	m := image{}
	if kill {
		for name, n := range p.nodes {
			m[name] = slices.Clone(n.cur)
		}
		return m
	}
	for _, name := range slices.Sorted(maps.Keys(p.dirs)) {
		d := p.dirs[name]
		names := maps.Clone(d.durable)
		k := 0
		if len(d.pend) > 0 {
			switch r.IntN(3) {
			case 0:
				k = len(d.pend)
			case 1:
				k = r.IntN(len(d.pend) + 1)
			}
		}
		for _, do := range d.pend[:k] {
			do(names)
		}
		for _, base := range slices.Sorted(maps.Keys(names)) {
			m[path.Join(name, base)] = names[base].crash(r, chance)
		}
	}
	return m
}

func (p *powerFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op("create " + name)
	f, err := p.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	n := &powerNode{}
	p.name(name, n)
	return &powerFile{File: f, p: p, n: n, name: name}, nil
}

func (p *powerFS) open(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	n := p.nodes[name]
	if n == nil {
		panic("an unknown file: " + name)
	}
	return &powerFile{File: f, p: p, n: n, name: name}, nil
}

func (p *powerFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := p.FS.OpenReadWrite(name, c, o...)
	return p.open(f, err, name)
}

func (p *powerFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op("reuse " + from)
	f, err := p.FS.ReuseForWrite(from, to, c)
	if err != nil {
		return nil, err
	}
	p.moved(from, to)
	return p.open(f, err, to)
}

func (p *powerFS) moved(from, to string) {
	if n := p.nodes[from]; n != nil {
		base, tobase := path.Base(from), path.Base(to)
		if path.Dir(from) != path.Dir(to) {
			panic("a file is moved to another directory")
		}
		d := p.dir(path.Dir(from))
		d.pend = append(d.pend, func(m map[string]*powerNode) { delete(m, base); m[tobase] = n })
		delete(p.nodes, from)
		p.nodes[to] = n
		return
	}
	// A directory's rename counts as synced: its parent is not modelled.
	for name, n := range p.nodes {
		if strings.HasPrefix(name, from+"/") {
			delete(p.nodes, name)
			p.nodes[to+strings.TrimPrefix(name, from)] = n
		}
	}
	for name, d := range p.dirs {
		if name == from || strings.HasPrefix(name, from+"/") {
			delete(p.dirs, name)
			p.dirs[to+strings.TrimPrefix(name, from)] = d
		}
	}
}

func (p *powerFS) Rename(from, to string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op("rename " + from)
	if err := p.FS.Rename(from, to); err != nil {
		return err
	}
	p.moved(from, to)
	return nil
}

func (p *powerFS) Link(from, to string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op("link " + from)
	if err := p.FS.Link(from, to); err != nil {
		return err
	}
	p.name(to, p.nodes[from])
	return nil
}

func (p *powerFS) Remove(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remove(name)
}

func (p *powerFS) remove(name string) error {
	p.op("remove " + name)
	if err := p.FS.Remove(name); err != nil {
		return err
	}
	if p.nodes[name] != nil {
		p.name(name, nil)
	}
	return nil
}

func (p *powerFS) RemoveAll(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all func(string)
	all = func(at string) {
		if names, err := p.List(at); err == nil {
			slices.Sort(names)
			for _, n := range names {
				all(path.Join(at, n))
			}
		}
		_ = p.remove(at)
	}
	if _, err := p.Stat(name); err == nil {
		all(name)
	}
	return p.FS.RemoveAll(name)
}

func (p *powerFS) OpenDir(name string) (vfs.File, error) {
	f, err := p.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &powerFile{File: f, p: p, dir: name, name: name}, nil
}

func (p *powerFS) Lock(name string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (p *powerFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41}, nil
}

func (p *powerFS) MkdirAll(name string, perm os.FileMode) error { return p.FS.MkdirAll(name, perm) }

func (p *powerFS) Unwrap() vfs.FS { return nil }

type powerFile struct {
	vfs.File
	p    *powerFS
	n    *powerNode
	dir  string
	name string
	pos  int
}

func (f *powerFile) put(b []byte, at int) {
	b = slices.Clone(b)
	if n := at + len(b); n > len(f.n.cur) {
		f.n.cur = append(f.n.cur, make([]byte, n-len(f.n.cur))...)
	}
	copy(f.n.cur[at:], b)
	f.n.pend = append(f.n.pend, powerWrite{at, b, len(f.n.cur)})
}

func (f *powerFile) Write(b []byte) (int, error) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.p.op("write " + f.name)
	n, err := f.File.Write(slices.Clone(b))
	f.put(b, f.pos)
	f.pos += len(b)
	return n, err
}

func (f *powerFile) WriteAt(b []byte, at int64) (int, error) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.p.op("write " + f.name)
	n, err := f.File.WriteAt(slices.Clone(b), at)
	f.put(b, int(at))
	return n, err
}

func (f *powerFile) sync() error {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.p.op("sync " + f.name)
	if f.n == nil {
		d := f.p.dir(f.dir)
		for _, do := range d.pend {
			do(d.durable)
		}
		d.pend = nil
	} else {
		f.n.durable, f.n.pend = slices.Clone(f.n.cur), nil
	}
	return nil
}
func (f *powerFile) Sync() error                    { return f.sync() }
func (f *powerFile) SyncData() error                { return f.sync() }
func (f *powerFile) SyncTo(int64) (bool, error)     { return false, nil }
func (f *powerFile) Preallocate(int64, int64) error { return nil }
