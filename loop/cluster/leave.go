package cluster

import (
	"errors"

	"treadle/loop/journal"
)

// Leave makes the data directory of a node, which does not run, that of a single server. It has every group that the
// node has on its disk, also those that no majority is known to have. Of the options Dir, FS and Log count.
func Leave(o journal.Options) error {
	return journal.Leave(o, []string{peersNote}, func() (*journal.Replica, error) {
		s, _, err := openStorage(o, nil)
		if err != nil {
			return nil, err
		}
		last, _ := s.LastIndex() // of a MemoryStorage: it never fails
		if s.replica.Applied().Index == 0 {
			err = errors.New("the node has not got the store of its cluster yet: it has no jobs")
		} else {
			err = s.apply(last)
		}
		if err != nil {
			return nil, errors.Join(err, s.replica.Close())
		}
		return s.replica, nil
	})
}
