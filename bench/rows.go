package main

import (
	"math"
	"slices"
)

// kind says how a row is measured.
type kind int

const (
	flow   kind = iota // producers and workers at a time
	drain              // queue everything, then time the workers
	memory             // queue everything, then look at the memory
	idle               // many connections that say nothing after their greeting
)

const (
	pipeline  = 64   // requests in flight a connection in the pipelined rows
	pacedRate = 1000 // jobs a second in the paced row
	pacedRow  = "paced 1000/s"
	// leastJobs keeps a scaled-down row meaningful: every connection should still see a few jobs.
	leastJobs = 200
)

// row is one line of the comparison for each contender.
type row struct {
	name     string
	section  section
	kind     kind
	load     load           // jobs is filled in for each contender
	variants []string       // these variants take part too
	once     bool           // one round is enough: a size, or a time of many seconds
	fewer    bool           // one round fewer than the others: many contenders, and slow ones
	passes   int            // this many trials, one after the other, are one measurement; 0: one
	exact    bool           // of which the scale makes no fewer
	fixed    int            // the same number of jobs, or connections, for everyone; 0: by guess
	guess    map[string]int // jobs for about one to two seconds, by contender
	against  string         // a row to compare with
	plugin   string         // in the rows of Disbatch: the kind of plugin whose tasks are done
	attack   attack         // what others do meanwhile
	victim   string         // the protocol that they do it to
}

// section is a part of the tables: the rows of one protocol.
type section string

const (
	periodicSection section = ""        // Periodic, beside the peers
	gloomSection    section = "gloom"   // Gloom masters and slaves
	acrossSection   section = "across"  // submitted in one protocol, done in another
	durableSection  section = "durable" // Periodic, beside the peers, jobs on disk
	dworkSection    section = "dwork"   // steals and completions, beside an echo
	attackSection   section = "attack"  // a client that behaves while others attack
	aloneSection    section = "alone"   // Treadle beside itself: long queues, many queues, many connections
	nodeSection     section = "node"    // a Disbatch node, on a double of a database
	payloadSection  section = "payload" // Periodic beside redis, workloads of other sizes
)

// sides says who speaks what in a row.
func (r row) sides(c contender, running *server) sides {
	ask := side{protocol: r.load.shape(c.protocol), network: running.network, address: running.address}
	work := side{protocol: newGloom(), network: "tcp", address: running.slaves}
	switch r.section {
	case gloomSection:
		return sides{produce: side{protocol: newGloom(), network: "tcp", address: running.masters}, work: work, ask: ask}
	case acrossSection:
		produce := ask
		produce.protocol = newPeriodicText()
		return sides{produce: produce, work: work, ask: ask}
	}
	return sides{produce: ask, work: ask, ask: ask}
}

// shape is a protocol with the workloads and the functions of a load.
func (l load) shape(p protocol) protocol {
	if l.functions > 0 {
		return newFunctions(l.functions, l.functionRun)
	}
	if l.payload == 0 {
		return p
	}
	if _, ok := p.(*redis); ok {
		return newRedisOf(l.payload)
	}
	return newPeriodicOf(l.payload)
}

// rows lists what is measured, in this order. The guesses come from trial runs on two cores.
func rows() []row {
	jobs := func(treadle, beanstalkd, gearmand, redis int) map[string]int {
		return map[string]int{
			"treadle": treadle, "treadle unix": 2 * treadle, "treadle crc": treadle, "treadle 2 loops": treadle,
			"beanstalkd": beanstalkd, "gearmand": gearmand, "redis": redis,
		}
	}
	// The queued row gives gearmand fewer jobs: its hash table of 991 chains takes a minute for a million, and its memory
	// grows by the job.
	return append([]row{
		{name: "sync 1", load: load{connections: 1, depth: 1}, guess: jobs(30e3, 15e3, 30e3, 15e3)},
		{name: "sync 8", load: load{connections: 8, depth: 1}, guess: jobs(80e3, 50e3, 80e3, 50e3)},
		{name: "sync 64", load: load{connections: 64, depth: 1}, variants: []string{overUnix, twoLoops, inCRC}, guess: jobs(100e3, 60e3, 90e3, 60e3)},
		{name: "pipe 1", load: load{connections: 1, depth: pipeline}, guess: jobs(1500e3, 70e3, 800e3, 600e3)},
		{name: "pipe 8", load: load{connections: 8, depth: pipeline}, variants: []string{inCRC}, guess: jobs(2000e3, 70e3, 1200e3, 800e3)},
		{name: "pipe 64", load: load{connections: 64, depth: pipeline}, guess: jobs(2000e3, 80e3, 1200e3, 800e3)},
		{name: pacedRow, load: load{connections: 8, depth: 1, rate: pacedRate}, fixed: 5000},
		{name: "drain", kind: drain, load: load{connections: 8, depth: pipeline}, fixed: 500e3, once: true},
		{name: "queued", kind: memory, load: load{connections: 8, depth: pipeline}, once: true, guess: jobs(1e6, 1e6, 300e3, 1e6)},
		{name: "idle", kind: idle, fixed: 2000, once: true},
		gloomRow("gloom 1x1", 1, 1, 15e3),
		gloomRow("gloom 64x8", 64, 8, 100e3),
		gloomRow("gloom 64x64", 64, 64, 100e3),
		gloomRow("gloom 1000x64", 1000, 64, 100e3),
		// A thousand jobs are over in some milliseconds: fifty times.
		{name: "gloom drain 1000", section: gloomSection, kind: drain, load: gloomDrain, fixed: 1000, passes: 50},
		{name: "gloom drain 100000", section: gloomSection, kind: drain, load: gloomDrain, fixed: 100e3, against: "gloom drain 1000"},
		{name: "periodic to gloom", section: acrossSection, load: load{connections: 8, workers: 64, depth: pipeline}, fixed: 100e3,
			against: "gloom 1000x64"},
	}, slices.Concat(payloadRows(), dworkRows(), attackRows(), nodeRows(), durableRows(), aloneRows())...)
}

// payloadRows have fewer requests in flight the longer they are: what waits in sockets and servers is bounded in bytes.
func payloadRows() []row {
	var rows []row
	for _, p := range []struct {
		name           string
		payload, depth int
		jobs           int
	}{
		{"10 B", 10, pipeline, 1000e3},
		{"1 KB", 1 << 10, pipeline, 500e3},
		{"64 KB", 64 << 10, 8, 30e3},
		{"1 MB", 1 << 20, 1, 2000},
	} {
		rows = append(rows, row{name: p.name, section: payloadSection, fixed: p.jobs, load: load{connections: 8, depth: p.depth, payload: p.payload}})
	}
	return rows
}

// gloomDrain is one master, whose submits wait for their acknowledgements alone, and then eight slaves.
var gloomDrain = load{connections: 1, workers: 8, depth: 8 * pipeline}

// gloomRow has so many jobs of one master submitted and not answered, and so many slaves.
func gloomRow(name string, outstanding, slaves, jobs int) row {
	return row{
		name: name, section: gloomSection, fixed: jobs,
		load: load{connections: 1, workers: slaves, depth: outstanding},
	}
}

// size is how many jobs, or idle connections, a contender gets in this row at the given scale.
func (r row) size(contender string, scale float64) int {
	jobs := r.fixed
	if jobs == 0 {
		jobs = r.guess[contender]
	}
	if r.exact {
		return jobs
	}
	return max(leastJobs, int(math.Round(float64(jobs)*scale)))
}

// admits says whether a contender takes part in this row.
func (r row) admits(c contender) bool {
	switch r.section {
	case periodicSection:
		return c.variant == "" || slices.Contains(r.variants, c.variant)
	case durableSection:
		return c.variant == "" && c.ours || slices.Contains(r.variants, c.variant)
	case dworkSection, attackSection:
		return r.admitsHub(c)
	case nodeSection:
		return c.name == "treadle"
	case payloadSection:
		return c.name == "treadle" || c.name == "redis"
	case aloneSection:
		if len(r.variants) > 0 {
			return slices.Contains(r.variants, c.variant)
		}
		return c.name == "treadle"
	}
	return c.gloom
}
