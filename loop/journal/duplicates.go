package journal

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// duplicates finds jobs that have the queue and name of a later job. The acknowledged deletion of
// such a job was lost, and a scheduler cannot restore both. Kept jobs and records of other kinds may
// share names.
type duplicates struct {
	seed  maphash.Seed
	names []nameHash
}

// nameHash is a job and the hash of its space, queue and name. Different names may share a hash.
type nameHash struct{ hash, seq uint64 }

func newDuplicates(jobs int64) *duplicates {
	return &duplicates{seed: maphash.MakeSeed(), names: make([]nameHash, 0, max(jobs, 0))}
}

// add adds the name of a record, unless the record is of a kept job, whose name is free.
func (d *duplicates) add(r *Record) {
	if r.Kind != KindJob || r.FailedAt != 0 || r.DoneAt != 0 { // the name of a kept job is free
		return
	}
	var h maphash.Hash
	h.SetSeed(d.seed)
	_ = h.WriteByte(r.Space) // a hash never fails
	_, _ = h.Write(r.Queue)
	_ = h.WriteByte(0)
	_, _ = h.Write(r.Name)
	d.names = append(d.names, nameHash{h.Sum64(), r.Seq})
}

// older returns the Seqs of the jobs that share their name with a later job. It calls read only
// when two hashes are equal; read calls its argument with all records in the order of their Seq.
func (d *duplicates) older(read func(func(*Record) error) error) (seqs []uint64, err error) {
	slices.SortFunc(d.names, func(a, b nameHash) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.seq, b.seq)) })
	same := map[uint64]bool{}
	for i := 1; i < len(d.names); i++ {
		if a, b := d.names[i-1], d.names[i]; a.hash == b.hash {
			same[a.seq], same[b.seq] = true, true
		}
	}
	if d.names = nil; len(same) == 0 {
		return nil, nil
	}
	type name struct {
		space       uint8
		queue, name string
	}
	latest := map[name]uint64{}
	queues := map[string][]name{} // the names in latest, by queue
	err = read(func(r *Record) error {
		switch {
		case r.Kind == KindDropped:
			for _, k := range queues[string(r.Queue)] {
				delete(latest, k)
			}
			delete(queues, string(r.Queue))
		case same[r.Seq] && r.FailedAt == 0 && r.DoneAt == 0:
			k := name{r.Space, string(r.Queue), string(r.Name)}
			if before := latest[k]; before > 0 {
				seqs = append(seqs, before)
			} else {
				queues[k.queue] = append(queues[k.queue], k)
			}
			latest[k] = r.Seq
		}
		return nil
	})
	slices.Sort(seqs)
	return seqs, err
}

// eachJob calls each with the records of a store in the order of their Seq.
func eachJob(db pebble.Reader, each func(*Record) error) error {
	var r Record
	return scan(db, recordKeys(), func(key, value []byte) error {
		if err := parseStoredRecord(key, value, &r); err != nil {
			return decodeError{err}
		}
		return each(&r)
	})
}

// duplicatesDamage reports the jobs in a store that have the name of a later job. It calls also
// with every record.
func duplicatesDamage(db pebble.Reader, jobs int64, also func(*Record)) ([]Damage, error) {
	n := newDuplicates(jobs)
	err := eachJob(db, func(r *Record) error {
		n.add(r)
		also(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	seqs, err := n.older(func(each func(*Record) error) error { return eachJob(db, each) })
	if err != nil || len(seqs) == 0 {
		return nil, err
	}
	return []Damage{{File: storeName, Offset: -1, What: fmt.Sprintf(
		"jobs with the queue and name of a later job, because their deletions were lost: %d, the first is job %d", len(seqs), seqs[0])}}, nil
}
