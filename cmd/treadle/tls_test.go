package main

import (
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"treadle/loop/certs/certtest"
)

// TestServeTLS: every protocol of streams and HTTP are served over TLS to clients with a certificate, and only to them.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), certtest.New(t, "ours")
	own := authority.Issue(dir, "server", time.Now().Add(time.Hour))
	mine := authority.Issue(t.TempDir(), "client", time.Now().Add(time.Hour))
	const any = "tls://127.0.0.1:0"
	args := []string{"serve", "--data", filepath.Join(dir, "data"), "--dwork", "off", "--tls-cert", own.Cert, "--tls-key", own.Key, "--tls-ca", own.CA}
	ports := []string{"periodic", "gloom-masters", "gloom-slaves", "kts46", "kts46-json", "beanstalk", "faktory", "http"}
	for _, setting := range ports {
		args = append(args, "--"+setting, any)
	}
	p := start(t, false, args...)
	at := make(map[string]string)
	for len(at) < len(ports)+1 { // and admin
		line := p.until(" msg=listening ")
		_, rest, _ := strings.Cut(line, "protocol=")
		setting, rest, _ := strings.Cut(rest, " ")
		_, address, _ := strings.Cut(rest, "address=")
		address = strings.TrimSuffix(strings.TrimSpace(address), "/")
		at[setting] = strings.Replace(address, "127.0.0.1", "localhost", 1) + "?ca=" + own.CA
	}
	p.drain()
	with := func(setting string) string { return at[setting] + "&cert=" + mine.Cert + "&key=" + mine.Key }

	worker := start(t, false, "-H", with("periodic"), "work", "echo", "-v", "--data", "--", "sh", "-c", "cat")
	worker.until("waiting for jobs")
	worker.drain()
	f := func(want string, args ...string) {
		t.Helper()
		if out, errs, code := treadle(t, "", args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, %q, %q, want %q", args, code, out, errs, want)
		}
	}
	f("hello", "-H", with("periodic"), "run", "echo", "hi", "-w", "hello")
	f("hello", "-H", with("periodic"), "--framing", "2018", "run", "echo", "hi", "-w", "hello")
	f(`"hi"`, "-H", with("gloom-masters"), "gloom", "submit", "echo", "hi")
	f("echo", "-H", with("http"), "queue", "list")
	f("ok", "-H", with("http"), "health")
	f("", "-H", with("kts46"), "kts46", "status")
	for setting, talk := range map[string][2]string{"beanstalk": {"list-tube-used\r\n", "USING default\r\n"}, "faktory": {"", "+HI {"}} {
		address, _, _ := strings.Cut(strings.TrimPrefix(at[setting], "tls://"), "?")
		c := worked(tls.Dial("tcp", address, authority.Client(&mine)))(t)
		worked(io.WriteString(c, talk[0]))(t)
		got := make([]byte, len(talk[1]))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != talk[1] {
			t.Errorf("%s: %q, %v, want %q", setting, got, err, talk[1])
		}
		_ = c.Close() // it has answered
	}

	authority.Issue(dir, "server", time.Now().Add(2*time.Hour))
	f("", "-H", "unix://"+filepath.Join(dir, "data", "admin.sock"), "reload")
	if err := os.Truncate(own.Key, 10); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := treadle(t, "", "-H", "unix://"+filepath.Join(dir, "data", "admin.sock"), "reload"); code == 0 || !strings.Contains(errs, own.Key) {
		t.Errorf("a reload with half a key: exit code %d, %q", code, errs)
	}
	f("", "-H", with("periodic"), "ping")
	_, errs, code := treadle(t, "", "-H", at["periodic"], "ping")
	if code != exitUnreachable || !strings.Contains(errs, "certificate") {
		t.Errorf("without a certificate: exit code %d, %q", code, errs)
	}
	_, errs, code = treadle(t, "", "-H", strings.Replace(at["periodic"], own.CA, dir+"/none", 1), "ping")
	if code != exitUsage || !strings.Contains(errs, "none: no such file") {
		t.Errorf("with a CA that is not there: exit code %d, %q", code, errs)
	}
}
