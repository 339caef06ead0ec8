package journal

import "testing"

// TestFailedJobsShareNames: a kept job has the name of another that is there, and that is no damage.
func TestFailedJobsShareNames(t *testing.T) {
	all := []Record{
		{Kind: KindJob, Space: 1, Seq: 1, Queue: []byte("q"), Name: []byte("j")},
		{Kind: KindJob, Space: 1, Seq: 2, Queue: []byte("q"), Name: []byte("j"), Attempts: Attempts{FailedAt: 5, Tries: 1}},
		{Kind: KindJob, Space: 1, Seq: 3, Queue: []byte("q"), Name: []byte("j"), Attempts: Attempts{FailedAt: 6, Tries: 1}},
		{Kind: KindJob, Space: 1, Seq: 4, Queue: []byte("q"), Name: []byte("j"), Finished: Finished{DoneAt: 7}},
	}
	d := newDuplicates(0)
	for i := range all {
		d.add(&all[i])
	}
	seqs, err := d.older(func(f func(*Record) error) error {
		for i := range all {
			if err := f(&all[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(seqs) > 0 {
		t.Errorf("the jobs %v have lost their end, %v", seqs, err)
	}
}
