package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// closedName is the marker of a clean shutdown in a store. It names the last group that was written
// and synced when the journal was closed. The statement stays true, so the marker remains until the
// next clean shutdown.
const closedName = "CLOSED"

const closedForm = "closed behind group %d, sum %08x\n"

func closedText(group uint64) string {
	return fmt.Sprintf(closedForm, group, crc32.Checksum(fmt.Append(nil, group), castagnoli))
}

// writeClosed writes the marker. Without a marker, as on a full disk, no data is lost; a start only
// detects less damage.
func writeClosed(f vfs.FS, store string, group uint64) error {
	return writeWhole(f, f.PathJoin(store, closedName), closedText(group))
}

// checkClosed compares the chain with the marker, if it exists.
func (s *survey) checkClosed() error {
	b, err := readFile(s.dir.fs, s.dir.fs.PathJoin(s.dir.store(), closedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read %s of the data directory %q: %w", closedName, s.dir.root, cause(err))
	}
	var group uint64
	var sum uint32
	if _, err := fmt.Sscanf(string(b), closedForm, &group, &sum); err != nil || closedText(group) != string(b) {
		s.addDamage(closedName, 0, int64(len(b)), "cannot be read: it is the marker of a clean shutdown")
		return nil
	}
	if last := s.chain.last.group; last >= group {
		return nil
	}
	d := Damage{File: storeName, Offset: -1}
	if n := len(s.dropped); n > 0 { // the dropped end held these groups
		d, s.dropped = s.dropped[n-1], s.dropped[:n-1]
	}
	d.What = fmt.Sprintf("groups %d to %d cannot be read, although a clean shutdown followed them", s.chain.last.group+1, group)
	s.damage = append(s.damage, d)
	return nil
}
