package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"treadle/loop/client"
)

// progressEvery is the least time between two drawings of a progress bar.
const progressEvery = 100 * time.Millisecond

type dumpCmd struct {
	File string `arg:"" help:"File to write, or - for standard output."`
}

// Help implements kong.HelpProvider.
func (dumpCmd) Help() string {
	return `The file, readable by its owner only, replaces FILE when the dump is complete; "-" is standard output. It holds exactly the bytes of the protocol's DUMP: Periodic jobs. Tasks, projects, changed settings and jobs of other protocols are not in it; the command says how many. Nor are jobs that have failed or are done and are kept. A backup has everything that is on disk: treadle backup jobs.tar.

	treadle dump jobs.dump
	treadle dump - | gzip > jobs.dump.gz`
}

// Run writes the dump.
func (d *dumpCmd) Run(c *cli, con *console) error {
	if d.File == "-" && isTerminal(con.out) {
		return badUsage("a dump is no text to read: name a file, or send it through a pipe")
	}
	return c.with(0, func(ctx context.Context, server *client.Client) error {
		bar := progress(con.err, "dump")
		write := func(w io.Writer) error {
			_, err := server.Dump(ctx, w, bar)
			return err
		}
		var err error
		if d.File == "-" {
			err = write(con.out)
		} else {
			err = replaceFile(d.File, write)
		}
		if err != nil {
			return err
		}
		if omitted, known, err := server.Omitted(ctx); err == nil && known {
			tellOmitted(con, omitted)
		}
		return nil
	})
}

// tellOmitted says what the server holds that a dump cannot.
func tellOmitted(con *console, omitted client.Omitted) {
	var parts []string
	for _, p := range []struct {
		n         int64
		one, many string
	}{
		{omitted.Tasks, "task of dwork or kts46", "tasks of dwork and kts46"},
		{omitted.Projects, "kts46 project", "kts46 projects"},
		{omitted.Jobs, "job of another protocol", "jobs of other protocols"},
		{omitted.Settings, "changed setting", "changed settings"},
	} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	if len(parts) > 0 {
		con.say("the dump leaves out %s: treadle backup has all that is on disk", strings.Join(parts, ", "))
	}
}

// replaceFile writes a temporary file and renames it to path, or to the file that path links to, when it is complete.
// It writes directly to a path that is no regular file, such as a pipe.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return fmt.Errorf("cannot write %s: it is a directory", path)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return fmt.Errorf("cannot write: %w", err)
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		if wrong := (*fs.PathError)(nil); errors.As(err, &wrong) {
			err = wrong.Err // without the path of the temporary file
		}
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // err is already the first error
		}
	}()
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path)) // the rename is on the disk when the directory is
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

type loadCmd struct {
	File string `arg:"" help:"File to read, or - for standard input."`
}

// Help implements kong.HelpProvider.
func (loadCmd) Help() string {
	return `Every job of the dump is submitted as by treadle submit; "-" is standard input. The file is read to its end first; when it is cut off or no dump, nothing is sent. The command says how many jobs are in, also when the server refuses the rest.

	treadle load jobs.dump
	gunzip < jobs.dump.gz | treadle load -
	treadle -H old:5000 dump - | treadle -H new:5000 load -`
}

// Run loads the dump. The protocol needs the size first, so input of unknown size goes through a temporary file.
func (l *loadCmd) Run(c *cli, con *console) error {
	source := con.in
	if l.File != "-" {
		f, err := os.Open(l.File)
		if err != nil {
			return fmt.Errorf("cannot load: %w", err)
		}
		source = f
	}
	// The file is only read, so the end of the process closes it.
	f, size, err := sized(source)
	if err != nil {
		return fmt.Errorf("cannot load %s: %w", l.File, err)
	}
	jobs, err := check(f, size)
	if err != nil {
		return fmt.Errorf("cannot load %s, nothing was sent: %w", l.File, err)
	}
	return c.with(0, func(ctx context.Context, server *client.Client) error {
		err := server.Load(ctx, f, size, progress(con.err, "load"))
		if err == nil {
			if jobs == 1 {
				con.say("1 job is loaded")
			} else {
				con.say("%d jobs are loaded", jobs)
			}
			return nil
		}
		err = server.Explain(ctx, err)
		switch in, known, failed := server.Loaded(ctx); {
		case failed != nil:
			return fmt.Errorf("%w; how many of the %d jobs are in is not known, see treadle status", err, jobs)
		case known:
			return fmt.Errorf("%w; %d of the %d jobs are in", err, in, jobs)
		}
		return err
	})
}

// check reads a dump to its end, counts its jobs and seeks back to the beginning.
func check(f *os.File, size int64) (jobs int64, err error) {
	start, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if jobs, err = client.CheckDump(f, size); err != nil {
		return 0, err
	}
	_, err = f.Seek(start, io.SeekStart)
	return jobs, err
}

// sized returns r as a file, and the number of bytes left in it.
func sized(r io.Reader) (*os.File, int64, error) {
	if f, ok := r.(*os.File); ok {
		info, err := f.Stat()
		if err == nil && info.IsDir() {
			err = errors.New("it is a directory")
		}
		if err != nil {
			return nil, 0, err
		}
		if info.Mode().IsRegular() {
			at, err := f.Seek(0, io.SeekCurrent)
			return f, info.Size() - at, err
		}
	}
	f, err := os.CreateTemp("", "treadle-load-*")
	if err != nil {
		return nil, 0, err
	}
	// The system deletes a file without a name when it is closed.
	err = os.Remove(f.Name())
	var size int64
	if err == nil {
		size, err = io.Copy(f, r)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progress shows a bar of bytes when w is a terminal.
func progress(w io.Writer, what string) client.Progress { return progressOf(w, what, true) }

// progressOf shows a bar of bytes or other things when w is a terminal.
func progressOf(w io.Writer, what string, bytes bool) client.Progress {
	if !isTerminal(w) {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(done, total int64) {
		if bar == nil {
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
				progressbar.OptionShowBytes(bytes), progressbar.OptionThrottle(progressEvery), progressbar.OptionClearOnFinish())
		}
		_ = bar.Set64(done) // a bar that cannot be drawn must not end the command
	}
}
