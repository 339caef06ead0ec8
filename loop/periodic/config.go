package periodic

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"treadle/loop/protocol"
	"treadle/sched"
)

// configKey is a Periodic CONFIG key. A version without the key has no name for it.
type configKey struct {
	name, laterName string // in the versions until 2023, which renamed some keys; both names are taken
	value           uint32 // the default of these versions
	name2026        string // in the version of 2026
	value2026       uint32 // the default of that version
}

// The keys that this server acts on, as indexes of configKeys.
const (
	keyTimeout     = iota // seconds that a job may run
	keyKeepalive          // seconds that a connection may be silent
	keyLockTimeout        // seconds that a job may wait for a lock
)

// configKeys lists all keys. Those without an index here are stored and answered and have no effect, since this
// server does not poll.
var configKeys = [...]configKey{
	keyTimeout:     {"timeout", "", 600, "timeout", 600},
	keyKeepalive:   {"keepalive", "", 300, "keepalive", 120},
	keyLockTimeout: {"lock-timeout", "", 300, "lock-timeout", 300},
	{"poll-delay", "poll-interval", 300, "", 0},
	{"revert-delay", "revert-interval", 300, "", 0},
	{"max-patch", "max-batch-size", 250, "max-batch-size", 500},
	{"assign-wait", "", 2, "assign-wait", 2},
	{"", "", 0, "max-pool-size", 2},
	{"", "", 0, "run-job-aggressive", 0},
}

// saved returns the key's name in the journal.
func (k *configKey) saved() string {
	if k.name == "" {
		return k.name2026
	}
	return k.name
}

// keyOf returns the index of a key, -1 for an unknown one.
func (v *wireVersion) keyOf(name string) int {
	for i := range configKeys {
		k := &configKeys[i]
		if name == "" {
			break
		}
		if v.config2026 && name == k.name2026 || !v.config2026 && (name == k.name || name == k.laterName) {
			return i
		}
	}
	return -1
}

// config holds the values of the CONFIG keys.
type config struct {
	changes sync.Mutex // held for a whole change, so that the journal gets the last one

	mu     sync.Mutex
	values [len(configKeys)]struct {
		value uint32
		set   bool
	}

	timeout       atomic.Int64 // seconds; a copy, as the next two, that is read without the lock
	keepalive     atomic.Int64 // milliseconds
	keepalive2026 atomic.Int64
}

// get returns a key's value in a version, 0 for an unknown one.
func (c *config) get(key int, version *wireVersion) uint32 {
	if key < 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch v := c.values[key]; {
	case v.set:
		return v.value
	case version.config2026:
		return configKeys[key].value2026
	}
	return configKeys[key].value
}

// set changes a key's value in all versions; an unknown key changes nothing.
func (c *config) set(key int, value uint32) {
	if key < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[key].value, c.values[key].set = value, true
}

// setConfig sets, applies and journals a key's value.
func (p *Protocol) setConfig(key int, value uint32) {
	p.config.changes.Lock()
	defer p.config.changes.Unlock()
	p.config.set(key, value)
	p.config.apply(p.sched)
	p.config.save(p.host, key)
}

// changed counts the keys whose value is not their default.
func (c *config) changed() (n uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, v := range c.values {
		k := configKeys[i]
		if v.set && (k.name != "" && v.value != k.value || k.name == "" && v.value != k.value2026) {
			n++
		}
	}
	return n
}

// restore sets a value from the journal and ignores a key of another version.
func (c *config) restore(key string, value []byte) {
	for i := range configKeys {
		if len(value) == 4 && key == configKeys[i].saved() {
			c.set(i, binary.BigEndian.Uint32(value))
		}
	}
}

// save journals a known key's value.
func (c *config) save(host protocol.Host, key int) {
	if key >= 0 {
		host.PutSetting(configPrefix+configKeys[key].saved(), binary.BigEndian.AppendUint32(nil, c.get(key, &plainVersion)))
	}
}

// configPrefix begins the names of these settings in the journal.
const configPrefix = "config."

// apply passes the values on to the scheduler and the lock-free copies.
func (c *config) apply(s *sched.Scheduler) {
	c.timeout.Store(int64(c.get(keyTimeout, &plainVersion)))
	s.SetTimeout(c.timeout.Load() * 1000)
	s.SetLockTimeout(int64(c.get(keyLockTimeout, &plainVersion)) * 1000)
	c.keepalive.Store(int64(c.get(keyKeepalive, &plainVersion)) * 1000)
	c.keepalive2026.Store(int64(c.get(keyKeepalive, wireVersions["2026"])) * 1000)
}
