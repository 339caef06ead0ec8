package main

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"treadle/bench/load"
	"treadle/bench/peer"
	"treadle/loop/disbatch/config"
)

// kind says how a row is measured.
type kind int

const (
	flow   kind = iota // producers and workers at a time
	drain              // queue everything, then time the workers
	memory             // queue everything, then look at the memory
	idle               // many connections that say nothing after their greeting
	hub                // tasks of the dwork protocol: created, or stolen and completed
	frames             // the requests of jobs, sent back by an echo
)

// section is a part of the tables: the rows of one protocol.
type section string

const (
	periodicSection section = ""        // Periodic, beside the peers
	gloomSection    section = "gloom"   // Gloom masters and slaves
	acrossSection   section = "across"  // submitted in one protocol, done in another
	durableSection  section = "durable" // Periodic, beside the peers, jobs on disk
	dworkSection    section = "dwork"   // steals and completions, beside an echo
	aloneSection    section = "alone"   // Treadle beside itself: long queues, many queues, many connections
	nodeSection     section = "node"    // a Disbatch node, on a double of a database
	payloadSection  section = "payload" // Periodic beside redis, workloads of other sizes
)

// row is one line of the comparison for each server.
type row struct {
	name     string
	section  section
	kind     kind
	load     load.Load      // its jobs are filled in for each server
	jobs     map[string]int // which servers take part, with so many jobs, connections or, idle nodes, milliseconds
	exact    bool           // of which the scale makes no fewer
	once     bool           // one round is enough: a size, or a time of many seconds
	fewer    bool           // one round fewer than the others: many servers, and slow ones
	passes   int            // this many trials, one after the other, are one measurement; 0: one
	against  string         // a row to compare with
	payload  int            // bytes of a workload; 0: load.WorkloadLen
	run      int            // neighbouring jobs of one function
	idlers   int            // connections that were greeted and say nothing
	collects bool           // the server is made to collect its garbage all the time
	libzmq   bool           // dwork workers are processes over libzmq
	plugin   string         // a Disbatch node does tasks of this kind of plugin
}

const (
	pipeline = 64 // requests in flight a connection in the pipelined rows
	// leastJobs keeps a scaled-down row meaningful: every connection should still see a few jobs.
	leastJobs = 200
	// ownDescriptors is how many descriptors the load generator and the server keep for other things than the
	// connections of a row.
	ownDescriptors = 300
)

// rows lists what is measured, in this order. The numbers of jobs, for about one to two seconds, come from trial runs on
// two cores.
func rows() []row {
	return slices.Concat(periodicRows(), gloomRows(), payloadRows(), dworkRows(), nodeRows(), durableRows(), aloneRows())
}

// alone is that Treadle alone takes part.
func alone(jobs int) map[string]int { return map[string]int{"treadle": jobs} }

// memoryPeers are Treadle with some of its variants, and the peers that keep their jobs in memory.
func memoryPeers(treadle, beanstalkd, gearmand, redis int, variants ...string) map[string]int {
	jobs := map[string]int{"treadle": treadle, "beanstalkd": beanstalkd, "gearmand": gearmand, "redis": redis}
	for _, v := range variants {
		jobs["treadle "+v] = treadle
	}
	if slices.Contains(variants, "unix") {
		jobs["treadle unix"] = 2 * treadle
	}
	return jobs
}

func periodicRows() []row {
	sync := func(connections int) load.Load { return load.Load{Connections: connections, Depth: 1} }
	pipe := func(connections int) load.Load { return load.Load{Connections: connections, Depth: pipeline} }
	// The queued row gives gearmand fewer jobs: its hash table of 991 chains takes a minute for a million, and its memory
	// grows by the job.
	return []row{
		{name: "sync 1", load: sync(1), jobs: memoryPeers(30e3, 15e3, 30e3, 15e3)},
		{name: "sync 8", load: sync(8), jobs: memoryPeers(80e3, 50e3, 80e3, 50e3)},
		{name: "sync 64", load: sync(64), jobs: memoryPeers(100e3, 60e3, 90e3, 60e3, "unix", "2 loops", "crc")},
		{name: "pipe 1", load: pipe(1), jobs: memoryPeers(1500e3, 70e3, 800e3, 600e3)},
		{name: "pipe 8", load: pipe(8), jobs: memoryPeers(2000e3, 70e3, 1200e3, 800e3, "crc")},
		{name: "pipe 64", load: pipe(64), jobs: memoryPeers(2000e3, 80e3, 1200e3, 800e3)},
		{name: "paced 1000/s", load: load.Load{Connections: 8, Depth: 1, Rate: 1000}, jobs: memoryPeers(5000, 5000, 5000, 5000)},
		{name: "drain", kind: drain, load: pipe(8), jobs: memoryPeers(500e3, 500e3, 500e3, 500e3), once: true},
		{name: "queued", kind: memory, load: pipe(8), jobs: memoryPeers(1e6, 1e6, 300e3, 1e6), once: true},
		{name: "idle", kind: idle, jobs: memoryPeers(2000, 2000, 2000, 2000), once: true},
	}
}

// gloomDrain is one master, whose submits wait for their acknowledgements alone, and then eight slaves.
var gloomDrain = load.Load{Connections: 1, Workers: 8, Depth: 8 * pipeline}

// gloomRows have so many jobs of one master submitted and not answered, and so many slaves.
func gloomRows() []row {
	with := func(outstanding, slaves, jobs int) row {
		return row{name: fmt.Sprintf("gloom %dx%d", outstanding, slaves), section: gloomSection, jobs: alone(jobs),
			load: load.Load{Connections: 1, Workers: slaves, Depth: outstanding}}
	}
	return []row{
		with(1, 1, 15e3), with(64, 8, 100e3), with(64, 64, 100e3), with(1000, 64, 100e3),
		// A thousand jobs are over in some milliseconds: fifty times.
		{name: "gloom drain 1000", section: gloomSection, kind: drain, load: gloomDrain, jobs: alone(1000), passes: 50},
		{name: "gloom drain 100000", section: gloomSection, kind: drain, load: gloomDrain, jobs: alone(100e3), against: "gloom drain 1000"},
		{name: "periodic to gloom", section: acrossSection, load: load.Load{Connections: 8, Workers: 64, Depth: pipeline}, jobs: alone(100e3),
			against: "gloom 1000x64"},
	}
}

// payloadRows have fewer requests in flight the longer they are: what waits in sockets and servers is bounded in bytes.
func payloadRows() []row {
	of := func(name string, payload, depth, jobs int) row {
		return row{name: name, section: payloadSection, load: load.Load{Connections: 8, Depth: depth}, payload: payload,
			jobs: map[string]int{"treadle": jobs, "redis": jobs}}
	}
	return []row{of("10 B", 10, pipeline, 1000e3), of("1 KB", 1<<10, pipeline, 500e3), of("64 KB", 64<<10, 8, 30e3), of("1 MB", 1<<20, 1, 2000)}
}

// dworkRows are measured on tasks that wait for nothing, made before the clock starts. Without workers they are created.
func dworkRows() []row {
	of := func(name string, workers, n, memory, durable int) row {
		return row{name: name, section: dworkSection, kind: hub, load: load.Load{Workers: workers, Depth: n},
			jobs: map[string]int{"treadle": memory, peer.Always: durable, peer.ZMQEcho: memory}}
	}
	req := of("dwork 8 REQ", 8, 1, 20e3, 6e3)
	req.libzmq = true
	delete(req.jobs, peer.ZMQEcho)
	return []row{
		of("dwork create", 0, load.CreateBlock, 400e3, 60e3), of("dwork 1x1", 1, 1, 20e3, 3e3), of("dwork 8x1", 8, 1, 50e3, 15e3),
		of("dwork 1x16", 1, 16, 200e3, 40e3), req, of("dwork 8x16", 8, 16, 600e3, 200e3),
	}
}

// nodeRows are measured on a Disbatch node, on a double of a database inside of this program. Jobs are tasks, in the
// idle row milliseconds. The claims are those of all tasks at once, which no worker takes meanwhile.
func nodeRows() []row {
	of := func(name string, plugin string, kind kind, threads, tasks int) row {
		return row{name: "disbatch " + name, section: nodeSection, plugin: plugin, kind: kind, jobs: alone(tasks), load: load.Load{Depth: threads}}
	}
	return []row{
		of("function 1", config.KindFunction, flow, 1, 3000), of("function 4", config.KindFunction, flow, 4, 5000),
		of("function 20", config.KindFunction, flow, 20, 5000),
		of("exec 1", config.KindExec, flow, 1, 1000), of("exec 4", config.KindExec, flow, 4, 1000), of("exec 20", config.KindExec, flow, 20, 1000),
		of("claims", config.KindFunction, drain, 0, 4000), of("idle", config.KindExec, idle, 4, 4000),
	}
}

// durableRows are measured with a journal each; Treadle in memory stands beside them, and beside one submit at a time the
// disk's own time.
func durableRows() []row {
	of := func(connections, depth, memory, always, interval, redisAlways, everysec, f0, f50 int) row {
		return row{section: durableSection, fewer: true, load: load.Load{Connections: connections, Depth: depth}, jobs: map[string]int{
			"treadle": memory, peer.Always: always, "treadle interval": interval, "treadle never": interval,
			"redis always": redisAlways, "redis everysec": everysec, "beanstalkd -f0": f0, "beanstalkd -f50": f50,
		}}
	}
	pipe, many, one := of(8, pipeline, 1500e3, 700e3, 1200e3, 220e3, 350e3, 5e3, 40e3), of(64, 1, 70e3, 45e3, 70e3, 24e3, 40e3, 5e3, 40e3),
		of(1, 1, 25e3, 5e3, 20e3, 4e3, 15e3, 4e3, 10e3)
	pipe.name, many.name, one.name = "synced pipe 8", "synced sync 64", "synced sync 1"
	one.jobs[peer.RawDisk] = 2000
	return []row{pipe, many, one}
}

// aloneRows load Treadle in ways in which it is compared with itself: what a long queue, many queues and many
// connections cost.
func aloneRows() []row {
	behind := func(name string, ready, delayed int, against string) row {
		return row{name: name, section: aloneSection, once: true, jobs: alone(1500e3), against: against,
			load: load.Load{Connections: 8, Depth: pipeline, Ready: ready, Delayed: delayed}}
	}
	collecting := behind("10M ready, collecting", 10e6, 0, "10M ready")
	collecting.collects = true
	many := func(name string, functions, run int, against string) row {
		return row{name: name, section: aloneSection, jobs: alone(1000e3), against: against, run: run,
			load: load.Load{Connections: 8, Workers: 1000 / peer.FunctionsServed, Depth: pipeline, Functions: functions}}
	}
	active := func(name string, idlers int, against string) row {
		return row{name: name, section: aloneSection, jobs: alone(80e3), against: against, idlers: idlers, load: load.Load{Connections: 500, Depth: 1}}
	}
	opened := func(connections int, against string) row {
		return row{name: fmt.Sprintf("connect %d", connections), section: aloneSection, kind: idle, jobs: alone(connections), exact: true, against: against}
	}
	return []row{
		{name: "frames echoed", section: aloneSection, kind: frames, jobs: map[string]int{peer.Frames: 2e6}, load: load.Load{Connections: 8, Depth: pipeline}},
		many("1 function", 1, 1, ""), many("1000 functions", 1000, 1, "1 function"), many("1000 functions, runs of 64", 1000, 64, "1 function"),
		behind("1M ready, 10M delayed", 1e6, 10e6, "pipe 8"),
		behind("10k ready", 10e3, 0, ""), behind("100k ready", 100e3, 0, "10k ready"), behind("1M ready", 1e6, 0, "10k ready"),
		behind("10M ready", 10e6, 0, "10k ready"), collecting,
		active("1000 active", 0, ""), active("1000 of 10000 active", 9000, "1000 active"),
		opened(100, ""), opened(1000, "connect 100"), opened(10000, "connect 100"),
	}
}

// size is how many jobs, or idle connections, a server gets in this row at the given scale.
func (r row) size(server string, scale float64) int {
	if r.exact {
		return r.jobs[server]
	}
	return max(leastJobs, int(math.Round(float64(r.jobs[server])*scale)))
}

// lacks names what the machine would have to have for this row.
func (r row) lacks() string {
	if r.libzmq && !load.HasLibzmq() {
		return "gcc and libzmq3-dev"
	}
	return ""
}

// scaled is the row with as many jobs and connections around those that it times as the scale and the limit of open
// files allow.
func (r row) scaled(scale float64) row {
	for _, n := range []*int{&r.load.Ready, &r.load.Delayed, &r.idlers} {
		*n = int(float64(*n) * scale)
	}
	r.idlers = min(r.idlers, descriptors()-2*r.load.Connections)
	return r
}

// descriptors is how many connections the load generator, or the server, may have.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return max(0, int(min(limit.Max, 1<<20))-ownDescriptors)
}

// sides says which protocol is spoken where in a row.
func (r row) sides(p peer.Peer, running *peer.Server) load.Sides {
	ask := load.Side{Protocol: r.protocol(p), Network: running.Network, Address: running.Address}
	work := load.Side{Protocol: peer.NewGloom(), Network: "tcp", Address: running.Slaves}
	switch r.section {
	case gloomSection:
		return load.Sides{Produce: load.Side{Protocol: peer.NewGloom(), Network: "tcp", Address: running.Masters}, Work: work, Ask: ask}
	case acrossSection:
		produce := ask
		produce.Protocol = peer.NewPeriodic(peer.PeriodicOptions{Text: true})
		return load.Sides{Produce: produce, Work: work, Ask: ask}
	}
	return load.Sides{Produce: ask, Work: ask, Ask: ask}
}

// protocol is a server's with the workloads and the functions of the row.
func (r row) protocol(p peer.Peer) load.Protocol {
	switch {
	case r.payload > 0 && p.Name == "redis":
		return peer.NewRedis(r.payload)
	case r.payload > 0 || r.load.Functions > 0 || p.Protocol == nil:
		return peer.NewPeriodic(peer.PeriodicOptions{Size: r.payload, Functions: r.load.Functions, Run: r.run})
	}
	return p.Protocol
}

// rowNames lists the names of all rows.
func rowNames() (names []string) {
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return names
}
