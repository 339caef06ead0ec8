package loop

import (
	"path/filepath"
	"slices"
	"testing"

	"treadle/loop/cluster"
)

// TestPassPorts: a follower opens the same ports as a server, in the same order within each setting.
func TestPassPorts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var o Options
	two := []string{"tcp://127.0.0.1:0", "unix://" + filepath.Join(dir, "p")}
	any := []string{"tcp://127.0.0.1:0"}
	o.Periodic.Listen, o.Gloom.Masters, o.Gloom.Slaves, o.Dwork.Listen, o.Kts46.Listen, o.Kts46.JSON = two, any, any, any, any, any
	o.Beanstalk.Listen, o.Faktory.Listen, o.Admin.Listen, o.HTTP = any, any, []string{"unix://" + filepath.Join(dir, "a")}, "127.0.0.1:0"
	s := startServer(t, o)
	var want, got []string
	for _, l := range s.listening {
		want = append(want, l.Setting)
	}
	for _, p := range s.passPorts() {
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
	passed := &passedClients{all: make(map[string]*passedClient)}
	for ordinal, client := range []cluster.Client{{Network: "tcp", Address: "10.0.0.7:4242"}, {Network: "unix"}} {
		c, forget, err := passed.open(s.listening, "periodic", ordinal, "b", client)
		if err != nil {
			t.Fatal(err)
		}
		if c.RemoteAddr().Network() != client.Network {
			t.Errorf("address %d of periodic is %s", ordinal, c.RemoteAddr())
		}
		if !isLocal(c) {
			t.Errorf("%s is another machine", c.RemoteAddr())
		}
		_ = c.Close()
		forget()
	}
	if _, _, err := passed.open(s.listening, "periodic", 2, "b", cluster.Client{}); err == nil {
		t.Error("a third address is there")
	}
}
