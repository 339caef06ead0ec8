package loop

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

// refuses runs a server that cannot start and checks its error.
func refuses(t *testing.T, setting, says string, o Options) {
	t.Helper()
	others := []*[]string{&o.Periodic.Listen, &o.Gloom.Masters, &o.Gloom.Slaves, &o.Dwork.Listen, &o.Kts46.Listen, &o.Kts46.JSON}
	for _, list := range others {
		if *list == nil {
			*list = []string{"off"}
		}
	}
	if o.HTTP == "" {
		o.HTTP = "off"
	}
	o.Data = NoData
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := Run(ctx, o)
	var wrong *OptionError
	if !errors.As(err, &wrong) || wrong.Setting != setting || !strings.Contains(err.Error(), says) ||
		!strings.HasPrefix(err.Error(), "--"+setting+": ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line on --%s that says %q", err, setting, says)
	}
}

// TestUsedAddresses: a port in use, a socket that is served and a file that is no socket are refused by
// the name of the setting, and stay as they are.
func TestUsedAddresses(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	refuses(t, "periodic", "cannot listen on tcp://"+r.tcp+": address already in use", Options{Periodic: PeriodicOptions{Listen: []string{"tcp://" + r.tcp}}})
	refuses(t, "periodic", "cannot listen on unix://"+r.unix+": another server listens there", Options{Periodic: PeriodicOptions{Listen: []string{"unix://" + r.unix}}})
	refuses(t, "http", "cannot listen on tcp://"+r.http+": address already in use", Options{HTTP: r.http})
	r.greet(periodic.Client).ping()

	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, "periodic", "the file is there and is no socket", Options{Periodic: PeriodicOptions{Listen: []string{"unix://" + file}}})
	refuses(t, "periodic", "the file is there and is no socket", Options{Periodic: PeriodicOptions{Listen: []string{"unix://" + dir}}})
	if text, err := os.ReadFile(file); string(text) != "precious" || err != nil {
		t.Errorf("the file is now %q, %v", text, err)
	}
	refuses(t, "periodic", "no such file or directory", Options{Periodic: PeriodicOptions{Listen: []string{"unix://" + dir + "/none/s"}}})
	// Addresses that were opened before the error are closed again.
	free := filepath.Join(dir, "free")
	refuses(t, "periodic", "address already in use", Options{Periodic: PeriodicOptions{Listen: []string{"unix://" + free, "tcp://" + r.tcp}}})
	if _, err := os.Lstat(free); !os.IsNotExist(err) {
		t.Errorf("a server that does not start leaves its socket behind: %v", err)
	}
}

// TestStaleSocket: a socket without a listener, as a killed server leaves it, is replaced. The new one is
// open to owner and group.
func TestStaleSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	r := startServer(t, Options{Periodic: PeriodicOptions{Listen: []string{"unix://" + path}}})
	r.greet(periodic.Client).ping()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("the socket is %v, %v; want mode 0660", info.Mode(), err)
	}
	r.stop()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// TestVersionsOfListeners: an address has the replies of its own version, or else those of --periodic-crc.
func TestVersionsOfListeners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	r := startServer(t, Options{Periodic: PeriodicOptions{CRC: "2020", Listen: []string{"tcp://127.0.0.1:0?crc=2019", "unix://" + path("a"), "unix://" + path("b") + "?crc=2026"}}})
	f := func(network, address, want string) {
		t.Helper()
		conn, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		hello := periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.CRC, Role: periodic.Worker})
		if _, err := conn.Write(append(hello, crcRequest(1, periodic.CanDo, str8("f"))...)); err != nil {
			t.Fatal(err)
		}
		// The answer to the PING is the last thing to read.
		if _, err := conn.Write(crcRequest(2, periodic.Ping)); err != nil {
			t.Fatal(err)
		}
		got := ""
		for in := bufio.NewReader(conn); !strings.HasSuffix(got, "2:0a"); {
			head := make([]byte, periodic.CRC.HeaderLen())
			if _, err := io.ReadFull(in, head); err != nil {
				t.Fatalf("%s, after %q: %v", address, got, err)
			}
			body := make([]byte, binary.BigEndian.Uint32(head[4:]))
			if _, err := io.ReadFull(in, body); err != nil {
				t.Fatal(err)
			}
			if got == "" {
				got = fmt.Sprintf("an id in %d bytes", len(body))
			} else {
				got += fmt.Sprintf(", %d:%x", body[3], body[4:])
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	f("tcp", r.tcp, "an id in 4 bytes, 2:0a")
	f("unix", path("a"), "an id in 5 bytes, 2:0a")
	f("unix", path("b"), "an id in 5 bytes, 1:10, 2:0a")
	refuses(t, "periodic", `tcp://127.0.0.1:0: the version "2018" of ?crc= is none of 2019-02, 2019, 2020, 2023, 2026`, Options{Periodic: PeriodicOptions{Listen: []string{"tcp://127.0.0.1:0?crc=2018"}}})
	refuses(t, "periodic", `the version "" of ?crc=`, Options{Periodic: PeriodicOptions{Listen: []string{"unix:///tmp/s?crc="}}})
	refuses(t, "periodic-crc", `"2018" is none of`, Options{Periodic: PeriodicOptions{CRC: "2018"}})
}
