package loop

import (
	"path/filepath"
	"slices"
	"testing"

	"treadle/loop/cluster"
)

// TestForwardedPorts: a follower opens the same ports as a server, in the same order within each setting.
func TestForwardedPorts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var o Options
	two := []string{"tcp://127.0.0.1:0", "unix://" + filepath.Join(dir, "p")}
	any := []string{"tcp://127.0.0.1:0"}
	o.Periodic.Listen, o.Gloom.Masters, o.Gloom.Slaves, o.Dwork.Listen, o.Kts46.Listen, o.Kts46.JSON = two, any, any, any, any, any
	o.Beanstalk.Listen, o.Faktory.Listen, o.Admin.Listen, o.HTTP = any, any, []string{"unix://" + filepath.Join(dir, "a")}, "127.0.0.1:0"
	all := nodePorts{openNew: openAddress}
	defer all.close()
	ports := all.beginRole()
	s := startServer(t, o, func(s *Server) { s.listenOn = ports.open })
	var want, got []string
	for _, l := range s.listening {
		want = append(want, l.Setting)
	}
	for _, p := range s.forwardedPorts() {
		for range p.addresses {
			got = append(got, p.setting)
		}
		if admin := p.setting == "admin"; p.localOnly != admin {
			t.Errorf("%s is for this machine alone: %v", p.setting, p.localOnly)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("a follower opens %q, a server %q", got, want)
	}
	for ordinal, client := range []cluster.Client{{Network: "tcp", Address: "10.0.0.7:4242"}, {Network: "unix"}} {
		c, err := ports.dialLocal("periodic", ordinal, "b", client)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if _, err := ports.dialLocal("periodic", 2, "b", cluster.Client{}); err == nil {
		t.Error("a third address is there")
	}
	next := all.beginRole()
	if _, err := next.dialLocal("periodic", 0, "b", cluster.Client{}); err == nil {
		t.Error("the next role takes connections at the ports of the last one")
	}
}
