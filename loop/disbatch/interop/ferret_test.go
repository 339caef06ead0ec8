package interop

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// suite holds the first words of the tests to run: those of the store, and those in which one node claims one task at a
// time. FerretDB 1 changes a document in two steps, so two concurrent claims may get the same task.
var suite = []string{
	"TestTasksAre", "TestClaimsFollow", "TestOnlyOneRun", "TestFiles", "TestIndexes", "TestConfigCollection", "TestDemoPlugin",
	"TestGFSAlways", "TestRunnerContract", "TestQueuesThat", "TestQueuesAlternate",
	"TestRestart", "TestCommandsSurvive", "TestRunnerDies", "TestReclaimAfter", "TestJournaledWrites",
}

func TestOnFerretDB(t *testing.T) {
	address := start(t)
	run := exec.Command("go", "test", "-count=1", "-v", "-p=1", "-timeout=8m", "-run", "^("+strings.Join(suite, "|")+")", "./store", "./node")
	run.Dir = ".."
	run.Env = append(os.Environ(), "TREADLE_TEST_MONGODB="+address)
	said, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, name := range suite {
		if !strings.Contains(string(said), "--- PASS: "+name) {
			t.Errorf("no test %s... has run", name)
		}
	}
}

// start runs FerretDB in this process until the end of the test.
func start(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // find a free port: FerretDB does not report its port
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	f, err := ferretdb.New(&ferretdb.Config{
		Handler: "sqlite", SQLiteURL: "file:" + t.TempDir() + "/", Listener: ferretdb.ListenerConfig{TCP: address},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("FerretDB: %v", err)
		}
	})
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(30 * time.Second); ; <-ticker.C {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return address
		}
		if time.Now().After(end) {
			t.Fatalf("FerretDB does not listen: %v", err)
		}
	}
}
