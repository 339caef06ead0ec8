package sched

import (
	"bytes"
	"hash/maphash"
	"sync"
)

// leaseName is the name by which FindLease finds a lease of a space of Rules.LeaseNames: the name of the job up to its
// first NUL.
type leaseName struct {
	space Space
	name  string
}

// leaseNames are the live leases that FindLease finds, in parts by the hash of their names.
type leaseNames [leaseParts]leaseNamePart

// leaseNamePart is one part of leaseNames. Its lock may be taken under a shard's. No lock is taken under it.
type leaseNamePart struct {
	mu     sync.Mutex
	newest map[leaseName]*lease
}

var leaseNameSeed = maphash.MakeSeed()

func (n *leaseNames) part(name string) *leaseNamePart {
	return &n[maphash.String(leaseNameSeed, name)%leaseParts]
}

// add adds the new lease of a job. It becomes the newest of its name.
func (n *leaseNames) add(sh *shard, job uint32, r *record, l *lease) {
	if !sh.s.rules[r.space].LeaseNames {
		return
	}
	name, _, _ := bytes.Cut(sh.nameView(job), []byte{0})
	l.name = leaseName{r.space, string(name)}
	p := n.part(l.name.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newest == nil {
		p.newest = make(map[leaseName]*lease)
	}
	if l.older = p.newest[l.name]; l.older != nil {
		l.older.newer = l
	}
	p.newest[l.name] = l
}

// remove removes a lease that has ended.
func (n *leaseNames) remove(l *lease) {
	if l.name.name == "" && l.name.space == 0 {
		return
	}
	p := n.part(l.name.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.older != nil {
		l.older.newer = l.newer
	}
	switch {
	case l.newer != nil:
		l.newer.older = l.older
	case l.older != nil:
		p.newest[l.name] = l.older
	default:
		if delete(p.newest, l.name); len(p.newest) == 0 {
			p.newest = nil // a map keeps the memory of its largest size
		}
	}
	l.older, l.newer = nil, nil
}

// FindLease returns the token of the newest lease of a job of a name. The space must have Rules.LeaseNames. The name of
// a job counts up to its first NUL, so several jobs may have one name here.
func (s *Scheduler) FindLease(space Space, name []byte) (Token, bool) {
	p := s.leaseNames.part(string(name))
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.newest[leaseName{space, string(name)}]; l != nil {
		return Token{l.number, l.secret}, true
	}
	return Token{}, false
}
