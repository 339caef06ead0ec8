package cluster

import (
	"errors"

	"treadle/loop/journal"
)

// Leave makes the data directory of a stopped node that of a single server. The directory keeps every group on its
// disk, also groups that no majority is known to have. Of the options it uses Dir, FS and Log.
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
