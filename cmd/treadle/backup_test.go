package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestBackup: while clients submit, a backup is taken; what was acknowledged before it is in the restored directory.
// The exit codes and errors of the commands are those of their help.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	socket, admin, file := at("s"), at("data/admin.sock"), at("b.tar")
	p := start(t, false, quiet(socket, "--data", at("data"))...)
	p.until("listening")
	op := user{t, admin}
	submit := func(name string) { outputOf(t, "-H", socket, "submit", "q", name, "-w", strings.Repeat(name, 50)) }
	for i := range 20 {
		submit(fmt.Sprint("before-", i))
	}
	outputOf(t, "-H", admin, "queue", "set", "q", "retries=7")
	var meanwhile sync.WaitGroup
	meanwhile.Go(func() {
		for i := range 20 {
			submit(fmt.Sprint("meanwhile-", i))
		}
	})
	outputOf(t, "-H", admin, "backup", file)
	meanwhile.Wait()
	op.fails(".*--replace\n", "backup "+file)
	outputOf(t, "-H", admin, "backup", file, "--replace")
	user{t, at("none.sock")}.ends(exitData, ".*\n", "backup "+at("none.tar"))
	op.fails(".* in use .*\n", "restore "+file+" --data "+at("data"))
	p.signal(syscall.SIGKILL)
	_ = p.Wait()
	op.fails(".* is not empty: .*\n", "restore "+file+" --data "+at("data"))
	if out := outputOf(t, "backup", "verify", "--json", file); !strings.Contains(out, `"epoch":1`) {
		t.Errorf("verify prints %q", out)
	}
	outputOf(t, "restore", file, "--data", at("copy"))
	out := outputOf(t, "journal", "export", at("copy"))
	for i := range 20 {
		for _, name := range []string{"before", "meanwhile"} {
			if want := fmt.Sprintf(`"name":"%s-%d"`, name, i); strings.Count(out, want) != 1 {
				t.Errorf("%d records have %s", strings.Count(out, want), want)
			}
		}
	}
	if !strings.Contains(out, `\"retries\":\"7\"`) {
		t.Error("the policy is not in the backup")
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("cut.tar"), whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	op.ends(exitData, ".*cut.tar: the backup cannot be used: .*\n", "backup verify "+at("cut.tar"))
	op.ends(exitData, ".*cut.tar: the backup cannot be used: .*\n", "restore "+at("cut.tar")+" --data "+at("other"))
	for _, name := range []string{"none.tar", "other/store", "data/store.backup"} {
		if _, err := os.Lstat(at(name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	if left, err := filepath.Glob(at("*.tar.*")); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %q, %v", left, err)
	}
	second := start(t, false, quiet(socket, "--data", at("copy"))...)
	second.until("listening")
	submit("after")
	second.stop()
}
