package loop

import (
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
)

// configKeys are the Periodic CONFIG keys with their defaults and later names. The
// first group acts at once; the rest is stored and answered and changes nothing:
// this server does not poll.
var configKeys = []struct {
	name, later string
	value       uint32
}{
	{"timeout", "", 600},      // seconds a job may run
	{"keepalive", "", 300},    // seconds a connection may be silent
	{"lock-timeout", "", 300}, // seconds a job may wait for a lock
	{"poll-delay", "poll-interval", 300},
	{"revert-delay", "revert-interval", 300},
	{"max-patch", "max-batch-size", 250},
	{"assign-wait", "", 2},
}

// config holds the values that Periodic clients may set while the server runs.
type config struct {
	mu     sync.Mutex
	values map[string]*uint32 // by every name of a key

	timeout   atomic.Int64 // seconds, for readers that cannot wait
	keepalive atomic.Int64 // milliseconds
}

func (c *config) init() {
	c.values = make(map[string]*uint32)
	for _, k := range configKeys {
		v := k.value
		c.values[k.name] = &v
		if k.later != "" {
			c.values[k.later] = &v
		}
	}
}

// get returns a key's value, 0 for an unknown one.
func (c *config) get(key string) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.values[key]; v != nil {
		return *v
	}
	return 0
}

// set changes a key's value; an unknown key changes nothing.
func (c *config) set(key string, value uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.values[key]; v != nil {
		*v = value
	}
}

// changed counts the keys that have another value than their default.
func (c *config) changed() (n uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range configKeys {
		if *c.values[k.name] != k.value {
			n++
		}
	}
	return n
}

// restore takes a value from the journal; a key of another version is ignored.
func (c *config) restore(key string, value []byte) error {
	name, ok := strings.CutPrefix(key, configPrefix)
	if ok && len(value) == 4 {
		c.set(name, binary.BigEndian.Uint32(value))
	}
	return nil
}

// save journals a known key's value under its first name.
func (c *config) save(s *Server, key string) {
	if s.feed == nil {
		return
	}
	for _, k := range configKeys {
		if key == k.name || key == k.later && k.later != "" {
			s.feed.journal.PutSetting(configPrefix+k.name, binary.BigEndian.AppendUint32(nil, c.get(key)))
			s.feed.dirty.Store(true)
		}
	}
}

// configPrefix sets these apart from other settings in the journal.
const configPrefix = "config."

// apply makes the values count.
func (c *config) apply(s *Server) {
	c.timeout.Store(int64(c.get("timeout")))
	s.sched.SetTimeout(c.timeout.Load() * 1000)
	s.sched.SetLockTimeout(int64(c.get("lock-timeout")) * 1000)
	c.keepalive.Store(int64(c.get("keepalive")) * 1000)
}
