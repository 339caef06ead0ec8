package loop

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/loop/periodic"
)

// TestOptions: the zero value is the documented defaults. A setting that cannot work is refused by its name.
func TestOptions(t *testing.T) {
	t.Parallel()
	var o Options
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.Periodic.Listen, []string{"tcp://127.0.0.1:5000", DefaultPeriodicUnix}) || o.HTTP != DefaultHTTP || o.Periodic.Grab != "hold" ||
		o.Periodic.Shutdown != "on" || o.Loops != max(1, runtime.GOMAXPROCS(0)-1) || o.Shards != 16 || o.MaxFrame != 64<<20 ||
		o.MaxOutbound != 128<<20 || o.Drain != 10*time.Second || o.HandshakeTimeout != 10*time.Second || o.FrameTimeout != 100*time.Second {
		t.Errorf("the defaults are %+v", o)
	}
	if o.MaxConnections < 1 || o.Log == nil {
		t.Errorf("%d connections, log %v", o.MaxConnections, o.Log)
	}
	o = Options{Bind: "192.0.2.1"}
	if err := o.validate(); err != nil || o.Periodic.Listen[0] != "tcp://192.0.2.1:5000" || o.HTTP != "192.0.2.1:5001" || o.Periodic.Listen[1] != periodic.DefaultUnix {
		t.Errorf("with --bind: %q, %q, %v", o.Periodic.Listen, o.HTTP, err)
	}
	o = Options{Bind: "::1"}
	if err := o.validate(); err != nil || o.Periodic.Listen[0] != "tcp://[::1]:5000" {
		t.Errorf("with --bind ::1: %q, %v", o.Periodic.Listen, err)
	}
	o = Options{Periodic: PeriodicOptions{Listen: []string{"off"}}, HTTP: "off"}
	if err := o.validate(); err != nil || len(o.Periodic.Listen) > 0 || o.HTTP != "" {
		t.Errorf("with everything off: %q, %q, %v", o.Periodic.Listen, o.HTTP, err)
	}

	refuses(t, "periodic", `"5000" is neither tcp://host:port nor tls://host:port nor unix:///path`, Options{Periodic: PeriodicOptions{Listen: []string{"5000"}}})
	refuses(t, "periodic", `"udp://:1" is neither`, Options{Periodic: PeriodicOptions{Listen: []string{"udp://:1"}}})
	refuses(t, "periodic", "missing port", Options{Periodic: PeriodicOptions{Listen: []string{"tcp://localhost"}}})
	refuses(t, "periodic", "must be absolute", Options{Periodic: PeriodicOptions{Listen: []string{"unix://s"}}})
	refuses(t, "periodic", "cannot listen on tcp://127.0.0.1:99999", Options{Periodic: PeriodicOptions{Listen: []string{"tcp://127.0.0.1:99999"}}})
	refuses(t, "periodic", "cannot listen on unix:///tmp/"+strings.Repeat("x", 200), Options{Periodic: PeriodicOptions{Listen: []string{"unix:///tmp/" + strings.Repeat("x", 200)}}})
	refuses(t, "http", "is neither host:port nor tls://host:port", Options{HTTP: "5001"})
	refuses(t, "periodic-grab", `"never" is neither hold nor document`, Options{Periodic: PeriodicOptions{Grab: "never"}})
	refuses(t, "periodic-shutdown", `"maybe" is neither on nor off`, Options{Periodic: PeriodicOptions{Shutdown: "maybe"}})
	refuses(t, "dwork-stop", `"now" is neither exit nor notfound`, Options{Dwork: DworkOptions{Stop: "now"}})
	refuses(t, "dwork-complete", `"nobody" is neither any nor holder`, Options{Dwork: DworkOptions{Complete: "nobody"}})
	refuses(t, "loops", "257 is not between 1 and 255", Options{Loops: 257})
	refuses(t, "loops", "-1 is not", Options{Loops: -1})
	refuses(t, "shards", "5000 is not between 1 and 4096", Options{Shards: 5000})
	refuses(t, "max-frame", "100 bytes is not between 1KiB and", Options{MaxFrame: 100})
	refuses(t, "max-frame", "2147483647 bytes is not between 1KiB and", Options{MaxFrame: 1<<31 - 1})
	refuses(t, "max-outbound", "512KiB is below the largest frame, 64MiB: the largest result would never fit", Options{MaxFrame: 1 << 20, MaxOutbound: 1 << 19})
	refuses(t, "gloom-max-frame", "-1 bytes is not between 1KiB and", Options{Gloom: GloomOptions{MaxFrame: -1}})
	refuses(t, "dwork-max-frame", "1 byte is not between 1KiB and", Options{Dwork: DworkOptions{MaxFrame: 1}})
	refuses(t, "max-connections", "RLIMIT_NOFILE", Options{MaxConnections: 1 << 30})
	refuses(t, "max-connections", "-1 is not between 1 and", Options{MaxConnections: -1})
	refuses(t, "handshake-timeout", "negative", Options{HandshakeTimeout: -1})
	refuses(t, "frame-timeout", "negative", Options{FrameTimeout: -1})
	refuses(t, "drain", "negative", Options{Drain: -1})
}
