package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// takeBackup returns the bytes of a backup.
func takeBackup(t *testing.T, j *Journal) []byte {
	t.Helper()
	b, err := j.Backup(time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n, err := b.WriteTo(&out)
	if size := b.Size(); err != nil || n != int64(out.Len()) || n != size {
		t.Fatalf("%d bytes are written, %d arrived, %d were announced: %v", n, out.Len(), size, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func verifyBytes(b []byte) (*BackupManifest, error) {
	return VerifyBackup(bytes.NewReader(b), int64(len(b)), nil)
}

func restoreBytes(b []byte, f vfs.FS) error {
	_, err := Restore(bytes.NewReader(b), int64(len(b)), testDir, f, nil)
	return err
}

// TestBackup: a backup that is taken while jobs come and go has exactly the state after a group, with everything that
// was appended before it; in each mode, and once more after a restart.
func TestBackup(t *testing.T) {
	t.Parallel()
	for mode := range Mode(3) {
		f := vfs.NewMem()
		for range 2 {
			o := testOptions(f)
			o.Sync = mode
			d := mustOpen(t, o)
			d.setting("config.timeout", fmt.Sprint("9", d.next))
			d.document(KindDefinition, "project", "job", "text")
			work := func() {
				for range 300 {
					seq := d.create(rand.IntN(500))
					if seq%3 != 0 {
						d.change(seq, 1)
					}
					if seq%2 == 0 {
						d.remove(seq)
					}
				}
			}
			work()
			d.j.Flush(1)
			before := uint64(0)
			for _, c := range d.changes {
				before = max(before, c.group)
			}
			var running sync.WaitGroup
			running.Go(func() {
				for range 20 {
					work()
					d.j.Flush(1)
				}
			})
			b := takeBackup(t, d.j)
			running.Wait()
			m, err := verifyBytes(b)
			if err != nil {
				t.Fatal(mode, err)
			}
			to := vfs.NewMem()
			if err := restoreBytes(b, to); err != nil {
				t.Fatal(mode, err)
			}
			got, err := reopen(to)
			if err != nil {
				t.Fatal(mode, err)
			}
			if m.Group < before {
				t.Errorf("%v: the backup has group %d, and changes of group %d came before it", mode, m.Group, before)
			}
			if want := d.after(m.Group); !got.equal(want) || int64(len(got.jobs)) != m.Records {
				t.Errorf("%v: %d records in the manifest, %s", mode, m.Records, got.diff(want))
			}
			if err := d.j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBackupAltered: a backup that was cut, or changed in one byte anywhere, is refused and restores nothing.
func TestBackupAltered(t *testing.T) {
	t.Parallel()
	d := mustOpen(t, testOptions(vfs.NewMem()))
	for range 200 {
		d.create(100)
	}
	d.wait()
	whole := takeBackup(t, d.j)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, b []byte) {
		f := vfs.NewMem()
		err := restoreBytes(b, f)
		_, verr := verifyBytes(b)
		if verr == nil {
			verr = errors.New("it is verified")
		} else if !errors.Is(err, ErrBadBackup) {
			verr = fmt.Errorf("restore says: %w", err)
		} else {
			verr = nil
		}
		names, _ := f.List(testDir)
		if verr != nil || slices.Contains(names, storeName) || slices.Contains(names, newName) {
			t.Errorf("%s: %v; the directory has %v", what, verr, names)
		}
	}
	end := len(bytes.TrimRight(whole, "\x00")) // what follows is padding
	for cut := 0; cut < end; cut += 1 + rand.IntN(end/40) {
		refused(fmt.Sprint("cut at ", cut), whole[:cut])
	}
	m, _ := verifyBytes(whole)
	a, _, _ := openArchive(bytes.NewReader(whole), int64(len(whole)))
	for _, f := range m.Files {
		if f.Size == 0 {
			continue
		}
		at := a.files[storeName+"/"+f.Name].at
		altered := bytes.Clone(whole)
		altered[at+rand.Int64N(f.Size)] ^= 1 << rand.IntN(8)
		refused("altered in "+f.Name, altered)
	}
	refused("with another number of records", bytes.Replace(whole, []byte(`"records": 200`), []byte(`"records": 201`), 1))
	refused("of a later version", bytes.Replace(whole, []byte(`"treadle_backup": 1`), []byte(`"treadle_backup": 2`), 1))
	refused("with a path", bytes.ReplaceAll(whole, []byte("store/OPTIONS"), []byte("../../OPTIONS")))
	refused("of something else", []byte(strings.Repeat("no archive ", 1000)))
}

// hitName returns the operation that failed, if any.
func hitName(f *faultFS) string {
	if hit := f.hit.Load(); hit != nil {
		return *hit
	}
	return "any failure"
}

// TestBackupFaults: a disk that fails while the store is copied fails the backup, and the journal goes on. A restore
// that fails, or is killed, leaves no store, and the next one works.
func TestBackupFaults(t *testing.T) {
	t.Parallel()
	var b []byte
	for at := int64(1); ; at++ {
		f := &faultFS{FS: vfs.NewMem(), kind: failENOSPC, at: at, only: func(op string) bool { return strings.Contains(op, backupName) }}
		d := mustOpen(t, testOptions(f))
		for range 100 {
			d.create(100)
		}
		d.wait()
		backup, err := d.j.Backup(time.Now())
		if err == nil { // it could do without the operation
			if _, busy := d.j.Backup(time.Now()); !errors.Is(busy, ErrBackupRuns) {
				t.Errorf("a second backup: %v", busy)
			}
			var out bytes.Buffer
			_, err = backup.WriteTo(&out)
			if _, bad := verifyBytes(out.Bytes()); err != nil || bad != nil {
				t.Errorf("a backup without %s: %v, %v", hitName(f), err, bad)
			}
			_ = backup.Close()
		}
		d.create(1)
		if !d.wait() {
			t.Fatalf("the journal ended with the backup: %v", d.j.disk.failure())
		}
		hit := f.hit.Load()
		f.at = 0
		b = takeBackup(t, d.j)
		if names, _ := f.List(testDir); slices.Contains(names, backupName) {
			t.Error("the copy is left")
		}
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
		if hit == nil {
			break
		}
	}
	for at := int64(1); ; at++ {
		f := &faultFS{FS: vfs.NewMem(), kind: failEIO, at: at, forever: true}
		err := restoreBytes(b, f)
		if f.hit.Load() == nil {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if err == nil {
			t.Fatalf("%s failed, and the restore does not say so", *f.hit.Load())
		}
		whole, _ := exists(f.FS, testDir+"/"+newName+"/"+formatName)
		if placed, _ := exists(f.FS, testDir+"/"+storeName); whole || placed { // only the end of the swap failed
			if s, err := reopen(f.FS); err != nil || len(s.jobs) < 100 {
				t.Errorf("after a failure of %s: %d jobs, %v", *f.hit.Load(), len(s.jobs), err)
			}
			continue
		}
		if err := restoreBytes(b, f.FS); err != nil {
			t.Fatalf("after a failure of %s: %v", *f.hit.Load(), err)
		}
	}
	full := vfs.NewMem()
	if s, err := reopen(full); err != nil || len(s.jobs) > 0 {
		t.Fatal(err)
	}
	if err := restoreBytes(b, full); err == nil || !strings.Contains(err.Error(), "is not empty: it has") {
		t.Errorf("a restore over another store: %v", err)
	}
}

// TestBackupOfLeader: the backup of a cluster's leader has what is committed and not in its store yet, and restores as
// the data directory of a single server.
func TestBackupOfLeader(t *testing.T) {
	t.Parallel()
	from, _, err := openReplica(t, vfs.NewMem())
	if err == nil {
		err = from.Restart(0, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &captured{to: from}
	j, err := Open(Options{Dir: testDir, Replica: from, Replicator: c})
	if err != nil {
		t.Fatal(err)
	}
	j.Put(0, &Record{Seq: 1, Space: 1, Queue: []byte("q"), Name: []byte("job")})
	group := j.Group(0)
	j.Flush(1)
	poll(t, "the job is not committed", func() bool { return j.Committed() >= group })
	b := takeBackup(t, j)
	if err := errors.Join(j.Close(), from.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := verifyBytes(b); err != nil {
		t.Fatal(err)
	}
	f := vfs.NewMem()
	if err := restoreBytes(b, f); err != nil {
		t.Fatal(err)
	}
	if s, err := reopen(f); err != nil || len(s.jobs) != 1 {
		t.Errorf("%d jobs: %v", len(s.jobs), err)
	}
	if r, err := Check(testDir, f); err != nil || len(r.Damage) > 0 {
		t.Error(err, r.Damage)
	}
	if r, _, err := openReplica(t, f); err == nil {
		t.Error("the restored directory is still a node's", r.Close())
	}
}
