package main

import (
	_ "embed"
	"math"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// kind says how a row is measured; apiKinds has those of the HTTP API.
type kind string

const (
	kindFlow   kind = ""       // producers and workers at the same time
	kindDrain  kind = "drain"  // all jobs are queued, then the workers are timed
	kindMemory kind = "memory" // all jobs are queued, then the memory is read
	kindIdle   kind = "idle"   // many connections that say nothing after their greeting
	kindHub    kind = "hub"    // tasks of the dwork protocol: created, or stolen and completed
	kindFrames kind = "frames" // the requests of jobs, sent back by an echo
)

// section is a part of the tables, as in sections.toml.
type section string

// The sections that differ from others in more than their figures.
const (
	gloomSection   section = "gloom"   // Gloom masters and slaves
	acrossSection  section = "across"  // submitted in one protocol, done in another
	durableSection section = "durable" // Periodic, beside the peers, jobs on disk
	nodeSection    section = "node"    // a Disbatch node, on a fake MongoDB
)

// row is one line of the comparison for each server.
type row struct {
	Name           string
	Section        section
	Kind           kind
	Load           load.Load      // each server gets its own number of jobs
	Jobs           map[string]int // by server: number of jobs or connections; for idle nodes, milliseconds
	Rounds         int            // rounds at most, where one takes long or measures a size; 0: those of the run
	Against        string         // the row to compare with
	Payload        int            // bytes of a workload; 0: load.WorkloadLen
	Run            int            // number of neighbouring jobs of one function
	Rest           int            // seconds that a server has to return the memory of finished jobs
	Idle           int            // number of greeted connections that send nothing
	Collecting     bool           // the server collects its garbage all the time
	ChangingPolicy bool           // the policy of the queue is changed all the time
	Watched        bool           // browsers show pages, and the metrics are read once a second
	Libzmq         bool           // dwork workers are processes over libzmq
	Plugin         string         // the kind of plugin of a Disbatch node's tasks
}

const (
	// minJobs keeps a scaled-down row meaningful: every connection should still see a few jobs.
	minJobs = 200
	// ownDescriptors is the number of descriptors that the load generator and the server keep for other things than the
	// connections of a row.
	ownDescriptors = 300
)

//go:embed rows.toml
var rowsText string

func rows() []row { return readTOML[row](rowsText)["rows"] }

// readTOML reads the lists of a file, by name.
func readTOML[T any](text string) (lists map[string][]T) {
	if err := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&lists); err != nil {
		panic(err) // each test of a run reads the same files
	}
	return lists
}

// size returns the number of jobs, or of idle connections, for a server at the given scale.
func (r row) size(server string, scale float64) int {
	return max(min(r.Jobs[server], minJobs), int(math.Round(float64(r.Jobs[server])*scale)))
}

// lacks names the packages that this row needs and the machine does not have.
func (r row) lacks() string {
	if r.Libzmq && !load.HasLibzmq() {
		return "gcc and libzmq3-dev"
	}
	return ""
}

// scaled returns the row with fewer jobs and connections around the timed ones: as the scale and the limit of open
// files allow.
func (r row) scaled(scale float64) row {
	for _, n := range []*int{&r.Load.Ready, &r.Load.Delayed, &r.Idle} {
		*n = int(float64(*n) * scale)
	}
	r.Idle = min(r.Idle, descriptors()-2*r.Load.Connections)
	return r
}

// descriptors returns the number of connections that the load generator, or the server, may have.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return max(0, int(min(limit.Max, 1<<20))-ownDescriptors)
}

// endpoints returns the protocols and addresses of producers and workers in a row.
func (r row) endpoints(p peer.Contender, running *peer.Server) load.Endpoints {
	ask := load.Endpoint{Protocol: r.protocol(p), Network: running.Network, Address: running.Address}
	work := load.Endpoint{Protocol: peer.NewGloom(), Network: "tcp", Address: running.Slaves}
	switch r.Section {
	case gloomSection:
		return load.Endpoints{Produce: load.Endpoint{Protocol: peer.NewGloom(), Network: "tcp", Address: running.Masters}, Work: work, Ask: ask}
	case acrossSection:
		produce := ask
		produce.Protocol = peer.NewPeriodic(peer.PeriodicOptions{Text: true})
		return load.Endpoints{Produce: produce, Work: work, Ask: ask}
	}
	return load.Endpoints{Produce: ask, Work: ask, Ask: ask}
}

// protocol returns the protocol of a server with the workloads and functions of the row.
func (r row) protocol(p peer.Contender) load.Protocol {
	switch {
	case r.Payload > 0 && p.Name == "redis":
		return peer.NewRedis(r.Payload)
	case r.Payload > 0 || r.Load.Functions > 0 || r.Load.Keys > 0:
		return peer.NewPeriodic(peer.PeriodicOptions{Size: r.Payload, Functions: r.Load.Functions, Run: r.Run, Keys: r.Load.Keys})
	}
	return p.Protocol
}
