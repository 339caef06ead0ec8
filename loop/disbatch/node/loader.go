package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// Bounds of plugin look-ups.
const (
	// loadTimeout bounds the look-up of one plugin, in seconds. Perl needs half a second, a busy host more.
	loadTimeout = 30
	// loadAgain is the time until a retry for a plugin that could not be loaded: it may be installed by then.
	loadAgain = time.Minute
	// maxLoading bounds the concurrent look-up processes.
	maxLoading = 2
	// maxLoadOutput bounds the bytes kept of each output of such a process.
	maxLoadOutput = 64 << 10
)

// loads returns the Perl class as which a task runner loads a plugin, or an error.
type loads func(runner, plugin string, schema store.Schema) (class string, err error)

// errLoading reports that a look-up is in progress.
var errLoading = errors.New("the task runner is asked whether it can load the plugin")

// loadKey is the argument of a look-up.
type loadKey struct {
	runner, plugin string
	schema         store.Schema
}

// loaded is the result of a look-up.
type loaded struct {
	class string
	err   error
	at    time.Time // time of the last result
	asks  bool      // a look-up is in progress
}

// loader looks up the plugins that task runners of the original can load, in separate processes. Only the ticking goroutine calls
// load.
type loader struct {
	include []string      // directories of Perl modules in addition to the runner's
	places  chan struct{} // one element per process
	asking  sync.WaitGroup

	mu    sync.Mutex
	known map[loadKey]*loaded
}

// newLoader returns a loader for the task runner of a configuration.
func newLoader(c *config.File) *loader {
	l := &loader{places: make(chan struct{}, maxLoading), known: make(map[loadKey]*loaded)}
	if c.Testing {
		l.include = []string{"lib"} // added by --testing of the runner
	}
	return l
}

// load is loads without waiting: it returns errLoading until the first result.
func (l *loader) load(ctx context.Context, key loadKey) (class string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.known[key]
	if a == nil {
		a = &loaded{err: errLoading}
		l.known[key] = a
	}
	if !a.asks && a.class == "" && time.Since(a.at) > loadAgain {
		a.asks = true
		l.asking.Go(func() { l.ask(ctx, key, a) })
	}
	return a.class, a.err
}

// forget drops the results for plugins that no queue has.
func (l *loader) forget(queues []store.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.known {
		if !slices.ContainsFunc(queues, func(q store.Queue) bool { return q.Plugin == key.plugin && q.Schema == key.schema }) {
			delete(l.known, key)
		}
	}
}

// ask runs one look-up and stores its result.
func (l *loader) ask(ctx context.Context, key loadKey, a *loaded) {
	select {
	case l.places <- struct{}{}:
		defer func() { <-l.places }()
	case <-ctx.Done():
	}
	class, err := loadPerl(ctx, key, l.include)
	l.mu.Lock()
	defer l.mu.Unlock()
	a.class, a.err, a.at, a.asks = class, err, time.Now(), false
}

// perlScript loads a plugin as a task runner does, with the directories that the runner's file adds, and prints its class. Only 2016
// runners accept PLUGIN::Task for PLUGIN.
const perlScript = `
my ($runner, $plugin, $task, @places) = @ARGV;
$0 = $runner;
if (open(my $file, "<", $runner)) {
    while (my $line = <$file>) { eval $line if $line =~ /^\s*use\s+(?:lib|FindBin)\b/ }
}
unshift @INC, @places;
my $why;
for my $class ($plugin, $task ? $plugin . "::Task" : ()) {
    if (eval "require $class; $class->can('run')") { print "\nclass $class\n"; exit 0 }
    $why = $@ || "$class has no method run\n" unless defined $why;
}
print STDERR $why;
exit 1;
`

// loadPerl loads a plugin with the Perl of a task runner and returns its class.
func loadPerl(ctx context.Context, key loadKey, places []string) (class string, err error) {
	command, err := interpreter(key.runner)
	if err != nil {
		return "", err
	}
	of2016 := ""
	if key.schema == store.Schema2016 {
		of2016 = "1"
	}
	path, err := exec.LookPath(key.runner)
	if err != nil {
		return "", err
	}
	p := config.Plugin{Command: command, Timeout: loadTimeout, MaxOutput: maxLoadOutput}
	r, err := executeCommand(ctx, &p, "", append([]string{"-e", perlScript, path, key.plugin, of2016}, places...), nil)
	switch {
	case err != nil:
		return "", err
	case r.broken != nil:
		return "", r.broken
	case r.exit != 0:
		why, _, _ := bytes.Cut(bytes.TrimSpace(r.stderr.kept), []byte("\n"))
		return "", errors.New(utf8Text(why))
	}
	said := strings.TrimSpace(utf8Text(r.stdout.kept))
	class, ok := strings.CutPrefix(said[strings.LastIndexByte(said, '\n')+1:], "class ")
	if !ok {
		return "", errors.New("its Perl ended without an answer")
	}
	return class, nil
}

// errNoPerl reports that a task runner is no Perl program.
var errNoPerl = errors.New("it is no Perl program that could be asked, so list the plugin in plugins")

// maxFirstLine bounds the bytes read of a program for its interpreter line.
const maxFirstLine = 512

// interpreter returns the command line of the Perl that runs a program, from its first line.
func interpreter(program string) ([]string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, maxFirstLine)
	n, _ := f.Read(head) // the error of an empty file: not a Perl program
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	line, script := strings.CutPrefix(line, "#!")
	words := strings.Fields(line)
	if !script || !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(filepath.Base(w), "perl") }) {
		return nil, errNoPerl
	}
	return words, nil
}
