package interop

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// kts46 holds the tests of the MongoDB of kts46 sites, with simulated original workers of both versions. Tests of an
// outage need a fake and are not among them.
var kts46 = []string{
	"TestProjects", "TestJobs", "TestDeleteJob", "TestBrokenJobs", "TestStatistics",
	"TestOriginalWorkers", "TestExistingProjects", "TestChangedBeside", "TestMarkedBeside", "TestRestart",
}

func TestKts46OnFerretDB(t *testing.T) {
	address := start(t)
	run := exec.Command("go", "test", "-count=1", "-v", "-timeout=8m", "-run", "^("+strings.Join(kts46, "|")+")$", ".")
	run.Dir = "../../kts46/store"
	run.Env = append(os.Environ(), "TREADLE_TEST_MONGODB="+address)
	said, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, name := range kts46 {
		if !strings.Contains(string(said), "--- PASS: "+name) {
			t.Errorf("%s has not run", name)
		}
	}
}
