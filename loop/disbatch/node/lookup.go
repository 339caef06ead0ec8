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
	// lookupTimeout bounds the look-up of one plugin, in seconds. Perl needs half a second, a busy host more.
	lookupTimeout = 30
	// lookupAgain is the time until a retry for a plugin that could not be loaded: it may be installed by then.
	lookupAgain = time.Minute
	// maxLookups bounds the concurrent look-up processes.
	maxLookups = 2
	// maxLookupOutput bounds the bytes kept of each output of such a process.
	maxLookupOutput = 64 << 10
)

// lookupFunc returns the Perl class as which a task runner loads a plugin, or an error.
type lookupFunc func(taskRunner, plugin string, schema store.Schema) (class string, err error)

// errLookupPending reports that a look-up is in progress.
var errLookupPending = errors.New("the task runner is asked whether it can load the plugin")

// lookupKey is the argument of a look-up.
type lookupKey struct {
	taskRunner, plugin string
	schema             store.Schema
}

// lookup is the state of the look-up of one plugin.
type lookup struct {
	class   string
	err     error
	at      time.Time // time of the last result
	pending bool      // a process looks the plugin up
}

// pluginLookup finds out which plugins the task runners of the original can load, in separate processes. Only the
// ticking goroutine calls result and forget.
type pluginLookup struct {
	include   []string      // directories of Perl modules in addition to the task runner's
	slots     chan struct{} // one element per process
	processes sync.WaitGroup

	mu      sync.Mutex
	lookups map[lookupKey]*lookup
}

// newPluginLookup returns the look-ups for the task runner of a configuration.
func newPluginLookup(c *config.File) *pluginLookup {
	l := &pluginLookup{slots: make(chan struct{}, maxLookups), lookups: make(map[lookupKey]*lookup)}
	if c.Testing {
		l.include = []string{"lib"} // added by --testing of the task runner
	}
	return l
}

// result is a lookupFunc that does not wait: it returns errLookupPending until the first result.
func (l *pluginLookup) result(ctx context.Context, key lookupKey) (class string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.lookups[key]
	if a == nil {
		a = &lookup{err: errLookupPending}
		l.lookups[key] = a
	}
	if !a.pending && a.class == "" && time.Since(a.at) > lookupAgain {
		a.pending = true
		l.processes.Go(func() { l.lookUp(ctx, key, a) })
	}
	return a.class, a.err
}

// forget drops the results for plugins that no queue has.
func (l *pluginLookup) forget(queues []store.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.lookups {
		if !slices.ContainsFunc(queues, func(q store.Queue) bool { return q.Plugin == key.plugin && q.Schema == key.schema }) {
			delete(l.lookups, key)
		}
	}
}

// lookUp runs the process of one look-up and stores its result.
func (l *pluginLookup) lookUp(ctx context.Context, key lookupKey, a *lookup) {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
	}
	class, err := lookUpPerl(ctx, key, l.include)
	l.mu.Lock()
	defer l.mu.Unlock()
	a.class, a.err, a.at, a.pending = class, err, time.Now(), false
}

// perlScript loads a plugin as a task runner does, with the directories that the runner's file adds, and prints its
// class. Only 2016 runners accept PLUGIN::Task for PLUGIN.
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

// lookUpPerl loads a plugin with the Perl of a task runner and returns its class. places are further directories of
// modules.
func lookUpPerl(ctx context.Context, key lookupKey, places []string) (class string, err error) {
	command, err := interpreter(key.taskRunner)
	if err != nil {
		return "", err
	}
	of2016 := ""
	if key.schema == store.Schema2016 {
		of2016 = "1"
	}
	path, err := exec.LookPath(key.taskRunner)
	if err != nil {
		return "", err
	}
	p := config.Plugin{Command: command, Timeout: lookupTimeout, MaxOutput: maxLookupOutput}
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
	output := strings.TrimSpace(utf8Text(r.stdout.kept))
	class, ok := strings.CutPrefix(output[strings.LastIndexByte(output, '\n')+1:], "class ")
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
