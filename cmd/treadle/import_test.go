package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/loop/client"
)

// serveBeanstalk starts a server of beanstalkd's protocol and returns its address.
func serveBeanstalk(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	p := start(t, false, append([]string{"serve", "--beanstalk", "tcp://127.0.0.1:0", "--periodic", "off", "--http", "off", "--data", "none", "--gloom-masters", "off",
		"--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off"}, args...)...)
	_, address, _ := strings.Cut(p.until("protocol=beanstalk"), "address=tcp://")
	p.drain()
	return p, strings.Fields(address)[0]
}

// serveBeanstalkd starts the installed beanstalkd and returns its address. Without one it skips the test.
func serveBeanstalkd(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		t.Skip("beanstalkd is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := l.Addr().String()
	must(t, l.Close())
	_, port, _ := net.SplitHostPort(address)
	child := exec.Command(path, "-l", "127.0.0.1", "-p", port)
	must(t, child.Start())
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait() // killed
	})
	for deadline := time.Now().Add(patience); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			must(t, c.Close())
			return address
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// beanstalkClient asks a server of beanstalkd's protocol.
type beanstalkClient struct {
	t *testing.T
	*client.Beanstalk
}

func dialBeanstalk(t *testing.T, address string) beanstalkClient {
	t.Helper()
	c := worked(client.DialBeanstalkd(t.Context(), address))(t)
	t.Cleanup(c.Close)
	return beanstalkClient{t, c}
}

// asks sends requests, each with the first word of its reply. One of put has a body behind a line break.
func (c beanstalkClient) asks(pairs ...string) (last client.BeanstalkReply) {
	c.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		line, body, isPut := strings.Cut(pairs[i], "\n")
		var data []byte
		if isPut {
			data = []byte(body)
		}
		last = worked(c.Ask(context.Background(), data, "%s", line))(c.t)
		if !last.Is(pairs[i+1]) {
			c.t.Fatalf("%q is answered %q, want %s", pairs[i], last.Words, pairs[i+1])
		}
	}
	return last
}

// TestImportBeanstalkd: the jobs of a running beanstalkd are counted, and nothing changes; then they are moved with
// their priorities, times, delays and states, and none of what a worker has.
func TestImportBeanstalkd(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"beanstalkd", "treadle"} {
		t.Run(kind, func(t *testing.T) {
			var from string
			if kind == "beanstalkd" {
				from = serveBeanstalkd(t)
			} else {
				_, from = serveBeanstalk(t)
			}
			_, to := serveBeanstalk(t)
			old := dialBeanstalk(t, from)
			old.asks("use mail", "USING", "watch mail", "WATCHING",
				"put 7 0 50 1\na", "INSERTED", "put 3 0 60 3\nb\r\n", "INSERTED", "put 0 0 90 0\n", "INSERTED", "put 1024 900 70 1\nd", "INSERTED", "put 1 0 60 1\ne", "INSERTED",
				"reserve", "RESERVED", "bury 3 44", "BURIED", "reserve", "RESERVED") // 5 stays reserved
			counted := func(out string) (all []imported) {
				must(t, json.Unmarshal([]byte(out), &all))
				return slices.DeleteFunc(all, func(i imported) bool { return i.Tube != "mail" })
			}
			want := imported{Tube: "mail", Ready: 2, Delayed: 1, Buried: 1, Reserved: 1}
			out, _, code := treadle(t, "", "import", "beanstalkd", from, "--to", to, "--json")
			if got := counted(out); code != 0 || len(got) != 1 || got[0] != want {
				t.Fatalf("exit code %d, %s", code, out)
			}
			if r := old.asks("stats-tube mail", "OK"); r.Number("current-jobs-ready") != 2 || r.Number("current-jobs-buried") != 1 || r.Number("pause") != 0 {
				t.Fatalf("the dry run has changed something: %s", r.Data)
			}
			want.Moved = 4
			out, said, code := treadle(t, "", "import", "beanstalkd", from, "--to", "tcp://"+to, "--tube", "mail", "--move", "--json")
			if got := counted(out); code != 0 || len(got) != 1 || got[0] != want {
				t.Fatalf("exit code %d, %s%s", code, out, said)
			}
			if r := old.asks("delete 5", "DELETED", "use other", "USING", "ignore mail", "WATCHING", "list-tubes", "OK"); slices.Contains(r.List(), "mail") {
				t.Errorf("jobs are left: %q", r.List())
			}
			moved(t, to)
		})
	}
}

// moved checks what TestImportBeanstalkd has moved.
func moved(t *testing.T, to string) {
	t.Helper()
	here := dialBeanstalk(t, to)
	here.asks("use mail", "USING", "watch mail", "WATCHING")
	for _, w := range []struct {
		peek, body, state string
		pri, ttr, delay   uint64
	}{
		{"peek-delayed", "d", "delayed", 1024, 70, 900},
		{"peek-buried", "", "buried", 44, 90, 0},
		{"peek-ready", "b\r\n", "ready", 3, 60, 0},
		{"peek-ready", "a", "ready", 7, 50, 0},
	} {
		job := here.asks(w.peek, "FOUND")
		id, body := job.Words[1], string(job.Data)
		r := here.asks("stats-job "+id, "OK")
		left := r.Number("time-left")
		if body != w.body || r.Value("state") != w.state || r.Number("pri") != w.pri || r.Number("ttr") != w.ttr || w.delay > 0 && (left > w.delay || left < w.delay-60) {
			t.Errorf("%s is %q, %s; want %+v", w.peek, body, r.Data, w)
		}
		here.asks("delete "+id, "DELETED")
	}
	if r := here.asks("stats-tube mail", "OK"); r.Number("current-jobs-ready")+r.Number("current-jobs-delayed")+r.Number("current-jobs-buried") != 0 {
		t.Errorf("there is more: %s", r.Data)
	}
}

// TestImportRefusals: what keeps jobs from being moved is said, and they stay where they are.
func TestImportRefusals(t *testing.T) {
	t.Parallel()
	_, from := serveBeanstalk(t)
	_, to := serveBeanstalk(t, "--beanstalk-max-job", "10")
	old := dialBeanstalk(t, from)
	old.asks(fmt.Sprintf("put 0 0 60 11\n%011d", 0), "INSERTED")
	for _, f := range []struct {
		says string
		args []string
	}{
		{"has no tube none (it answered NOT_FOUND)", []string{from, "--tube", "none"}},
		{"a job has 11 bytes: start this server with a larger --beanstalk-max-job", []string{from, "--to", to, "--move"}},
		{"cannot connect to tcp://127.0.0.1:1", []string{"127.0.0.1:1"}},
		{"are the same server", []string{from, "--to", from, "--move"}},
	} {
		if _, said, code := treadle(t, "", append([]string{"import", "beanstalkd"}, f.args...)...); code == 0 || !strings.Contains(said, f.says) {
			t.Errorf("%q: exit code %d, %q, want %q", f.args, code, said, f.says)
		}
	}
	old.asks("peek-ready", "FOUND")
	if left := worked(old.Ask(t.Context(), nil, "stats-tube default"))(t); left.Number("pause-time-left") != 0 {
		t.Errorf("the tube is paused for %d s more", left.Number("pause-time-left"))
	}
	old.asks("pause-tube default 5000", "PAUSED")
	treadle(t, "", "import", "beanstalkd", from, "--to", to, "--move")
	if left := worked(old.Ask(t.Context(), nil, "stats-tube default"))(t); left.Number("pause-time-left") < 4000 {
		t.Errorf("the tube is paused for %d s more, and was for 5000", left.Number("pause-time-left"))
	}
}
