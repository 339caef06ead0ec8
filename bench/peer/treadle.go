package peer

import (
	"context"
	"strings"

	"treadle/bench/load"
	"treadle/loop/client"
)

// Always is the Treadle that syncs its jobs before it acknowledges them.
const Always = "treadle always"

// serve makes a Treadle listen on its ports, in every protocol that it speaks.
const serve = "serve --periodic tcp://127.0.0.1:{port0} --gloom-masters tcp://127.0.0.1:{port1} --gloom-slaves tcp://127.0.0.1:{port2} " +
	"--dwork tcp://127.0.0.1:{port3} --kts46 tcp://127.0.0.1:{port4} --kts46-json tcp://127.0.0.1:{port5} --http 127.0.0.1:{port6} "

// variant returns a Treadle that serves with more arguments.
func variant(name string, c Command, spoken PeriodicOptions, more string) Contender {
	c.treadle, c.Arguments = true, strings.Fields(serve+more)
	return Contender{Name: name, Path: c.Path, Protocol: NewPeriodic(spoken), Start: c.Start}
}

// treadles keep their jobs in memory: over TCP, over a unix socket, with two event loops, in the CRC framing, and with
// policies for the queue.
func treadles(path string) []Contender {
	const memory = "--periodic unix://{directory}/periodic.sock --admin unix://{directory}/admin.sock --data none --pprof on " // a profile makes a Treadle collect
	tcp, unix := Command{Path: path}, Command{Path: path, Socket: "periodic.sock"}
	limits, fair := tcp, tcp
	limits.prepare = func(ctx context.Context, s *Server) error {
		return s.SetPolicy(ctx, Policy{"retries": new("3"), "concurrency": new("1000")})
	}
	fair.prepare = func(ctx context.Context, s *Server) error { return s.SetPolicy(ctx, FairPolicy) }
	list := []Contender{
		variant("treadle", tcp, PeriodicOptions{}, memory),
		variant("treadle unix", unix, PeriodicOptions{}, memory),
		variant("treadle 2 loops", tcp, PeriodicOptions{}, memory+"--loops 2"),
		variant("treadle crc", tcp, PeriodicOptions{CRC: true}, memory),
		variant("treadle limits", limits, PeriodicOptions{}, memory),
		variant("treadle fair", fair, PeriodicOptions{}, memory),
	}
	list[0].Version = version(path, "--version")
	c := Command{Path: path}
	return append(list, withBeanstalk("treadle beanstalk", c, "--data none"), withFaktory("treadle faktory", c, "--data none"))
}

// treadlesOnDisk keep a journal.
func treadlesOnDisk(path, place string) (list []Contender) {
	for _, mode := range []string{"always", "interval", "never"} {
		list = append(list, variant("treadle "+mode, Command{Path: path, place: place}, PeriodicOptions{},
			"--admin unix://{directory}/admin.sock --data {directory}/data --sync "+mode))
	}
	c, always := Command{Path: path, place: place}, "--data {directory}/data --sync always"
	return append(list, withBeanstalk("treadle beanstalk always", c, always), withFaktory("treadle faktory always", c, always))
}

// withBeanstalk returns a Treadle that serves beanstalkd's protocol alone.
func withBeanstalk(name string, c Command, more string) Contender {
	return serving("beanstalk", newBeanstalkd(), name, c, more)
}

// withFaktory returns a Treadle that serves Faktory's protocol alone.
func withFaktory(name string, c Command, more string) Contender {
	return serving("faktory", newFaktory(), name, c, more)
}

// serving returns a Treadle that serves one protocol, by its setting.
func serving(setting string, p load.Protocol, name string, c Command, more string) Contender {
	c.Arguments = strings.Fields("serve --" + setting + " tcp://127.0.0.1:{port0} --periodic off --gloom-masters off --gloom-slaves off --dwork off " +
		"--kts46 off --kts46-json off --http off --admin off " + more)
	return Contender{Name: name, Path: c.Path, Protocol: p, Start: c.Start}
}

// Policy is the values of a rule for the queue; nil takes a value out.
type Policy map[string]*string

// FairPolicy lets the keys of PeriodicOptions.Keys take turns.
var FairPolicy = Policy{"key": new("name before :"), "fair": new("key")}

// SetPolicy changes the rule for the queue of a Treadle that keeps its jobs in memory.
func (s *Server) SetPolicy(ctx context.Context, p Policy) error {
	a := client.NewAdmin(s.Admin)
	defer a.Close()
	_, err := a.SetPolicy(ctx, load.QueueName, p)
	return err
}

// StartNode starts a Disbatch node of the program with a configuration file. A node whose tasks are done by workers of
// other protocols needs a server around it.
func StartNode(ctx context.Context, path, config string, workers bool) (*Server, error) {
	arguments := "disbatch node --http 127.0.0.1:{port0} --node " + load.QueueName + " --config"
	if workers {
		arguments = serve + "--data none --disbatch-node " + load.QueueName + " --disbatch"
	}
	return Command{Path: path, Arguments: append(strings.Fields(arguments), config)}.Start(ctx)
}
