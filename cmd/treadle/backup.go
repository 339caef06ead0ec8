package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"treadle/loop/client"
	"treadle/loop/journal"
)

// backupCmd takes and verifies backups.
type backupCmd struct {
	Take   backupTakeCmd   `cmd:"" default:"withargs" help:"Back up a running server to a file; the word take may be left out."`
	Verify backupVerifyCmd `cmd:"" help:"Read a backup as a restore would, and tell what it holds."`
}

// Help implements kong.HelpProvider.
func (backupCmd) Help() string {
	return `The server goes on meanwhile. The backup has everything that was acknowledged before the command: jobs in every state with their attempts, results and leases, graphs of tasks, policies, cron entries, run-time settings.

	treadle backup treadle-$(date +%F).tar
	treadle backup verify treadle-2026-01-31.tar
	treadle restore treadle-2026-01-31.tar --data new-data`
}

type backupTakeCmd struct {
	File    string `arg:"" help:"File to write, or - for standard output."`
	Replace bool   `help:"Replace FILE if it exists; the new backup takes its place when it is complete."`
	JSON    bool   `name:"json" help:"Print the report as JSON."`
}

// Help implements kong.HelpProvider.
func (backupTakeCmd) Help() string {
	return `Needs the operators' interface (--admin), which by default is admin.sock in the data directory: the port of --http refuses it. FILE appears when it is complete and synced. It is a tar archive with a manifest at its end.

	treadle backup treadle-$(date +%F).tar
	treadle -H /var/lib/treadle/admin.sock backup - | ssh other-host 'cat > treadle.tar'`
}

// Run writes the backup and prints what it holds.
func (b *backupTakeCmd) Run(c *cli, con *console) error {
	receive := func(w io.Writer) error {
		return c.withAdminFor(0, func(ctx context.Context, a *client.Admin) error { return a.Backup(ctx, w, progress(con.err, "backup")) })
	}
	switch _, err := os.Lstat(b.File); {
	case b.File == "-":
		return receive(con.out)
	case b.File == "":
		return usage(errors.New("the name of the file is empty"))
	case err == nil && !b.Replace:
		return fmt.Errorf("%s exists: name another file, or replace it with --replace", b.File)
	}
	if err := replaceFile(b.File, receive); err != nil {
		return err
	}
	return withBackup(b.File, func(f *os.File, size int64) error {
		m, err := journal.ReadManifest(f, size)
		if err != nil {
			return err
		}
		return printManifest(con.out, b.File, m, b.JSON)
	})
}

// printManifest prints what a backup holds as a table, or as JSON.
func printManifest(out io.Writer, file string, m *journal.BackupManifest, asJSON bool) error {
	if asJSON {
		return writeLines(out, []jsonManifest{{file, m.Taken, m.Format, m.Group, m.Epoch, m.Records, m.Size()}})
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "backup\t%s\n", file)
	fmt.Fprintf(w, "taken\t%s\n", m.Taken.Format(time.RFC3339))
	fmt.Fprintf(w, "records\t%d\n", m.Records)
	fmt.Fprintf(w, "last group\t%d\n", m.Group)
	fmt.Fprintf(w, "files\t%s, %v\n", counted(len(m.Files), "file"), journal.Size(m.Size()))
	return w.Flush()
}

// jsonManifest is the JSON of a backup.
type jsonManifest struct {
	File    string    `json:"file"`
	Taken   time.Time `json:"taken"`
	Format  int       `json:"format"`
	Group   uint64    `json:"group"`
	Epoch   uint64    `json:"epoch"`
	Records int64     `json:"records"`
	Bytes   int64     `json:"bytes"`
}

type backupVerifyCmd struct {
	File string `arg:"" help:"Backup."`
	JSON bool   `name:"json" help:"Print the report as JSON."`
}

// Help implements kong.HelpProvider.
func (backupVerifyCmd) Help() string {
	return `Compares every file with its checksum, opens the store in the archive and reads every record. The exit code is 3 when the backup cannot be restored.

	treadle backup verify treadle-2026-01-31.tar`
}

// Run verifies the backup and prints what it holds.
func (b *backupVerifyCmd) Run(con *console) error {
	return withBackup(b.File, func(f *os.File, size int64) error {
		m, err := journal.VerifyBackup(f, size, progress(con.err, "verify"))
		if err != nil {
			return err
		}
		return printManifest(con.out, b.File, m, b.JSON)
	})
}

// withBackup opens a backup. An error about what it holds names it.
func withBackup(name string, use func(f *os.File, size int64) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err == nil {
		err = use(f, info.Size()) // a pipe has no size, so it is cut
	}
	if errors.Is(err, journal.ErrBadBackup) {
		return damaged(fmt.Errorf("%s: %w", name, err))
	}
	return err
}

// restoreCmd makes a data directory from a backup.
type restoreCmd struct {
	File string `arg:"" help:"Backup."`
	Data string `default:"treadle-data" help:"Data directory to make: a new or an empty one (default: ${default})."`
	JSON bool   `name:"json" help:"Print the report as JSON."`
}

// Help implements kong.HelpProvider.
func (restoreCmd) Help() string {
	return `Verifies the backup first. The directory is that of a single server, also from the backup of a cluster. Jobs that ran when the backup was taken wait again.

	treadle restore treadle-2026-01-31.tar --data new-data
	treadle serve --data new-data`
}

// Run restores the backup and prints what it held.
func (r *restoreCmd) Run(con *console) error {
	return withBackup(r.File, func(f *os.File, size int64) error {
		m, err := journal.Restore(f, size, r.Data, nil, progress(con.err, "restore"))
		if err != nil {
			return err
		}
		if err := printManifest(con.out, r.File, m, r.JSON); err != nil || r.JSON {
			return err
		}
		_, err = fmt.Fprintf(con.out, "restored: treadle serve --data %s\n", r.Data)
		return err
	})
}
