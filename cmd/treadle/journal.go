package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"treadle/loop/journal"
)

// journalCmd works on a data directory that no server uses.
type journalCmd struct {
	Check  journalCheckCmd  `cmd:"" help:"Tell what a data directory holds and what is damaged."`
	Repair journalRepairCmd `cmd:"" help:"Keep what can be read of a damaged data directory."`
	Export journalExportCmd `cmd:"" help:"Write everything in a data directory as JSON lines."`
	Import journalImportCmd `cmd:"" help:"Put JSON lines into a data directory."`
}

// Help implements kong.HelpProvider.
func (journalCmd) Help() string {
	return `These commands need the data directory to themselves: stop its server first.

	treadle journal check treadle-data
	treadle journal export treadle-data > jobs.jsonl
	treadle journal import new-data < jobs.jsonl`
}

type journalCheckCmd struct {
	Dir  string `arg:"" help:"Data directory."`
	JSON bool   `name:"json" help:"Print the report as JSON."`
}

// Help implements kong.HelpProvider.
func (journalCheckCmd) Help() string {
	return `Reads every file and changes nothing. The exit code is 3 when something is damaged. The end of a log that a kill or a loss of power has left unfinished is no damage: it was not acknowledged, and the next start leaves it out.

	treadle journal check treadle-data`
}

// Run checks the directory and prints the report.
func (j *journalCheckCmd) Run(con *console) error {
	r, err := journal.Check(j.Dir, nil)
	if err != nil {
		return err
	}
	if err := printReport(con.out, j.Dir, r, j.JSON); err != nil {
		return err
	}
	if len(r.Damage) > 0 {
		return damaged(fmt.Errorf("%s is damaged in %s; treadle journal repair %s keeps what can be read", j.Dir, places(len(r.Damage)), j.Dir))
	}
	return nil
}

// damaged returns an error about damaged data.
func damaged(err error) error { return coded{err, exitData, "damaged"} }

func places(n int) string {
	if n == 1 {
		return "one place"
	}
	return fmt.Sprintf("%d places", n)
}

type journalRepairCmd struct {
	Dir  string `arg:"" help:"Data directory."`
	JSON bool   `name:"json" help:"Print the report as JSON."`
}

// Help implements kong.HelpProvider.
func (journalRepairCmd) Help() string {
	return `Copies every readable record into a new store, puts it in the place of the damaged store and keeps the damaged store beside it. Without damage nothing is changed. Damaged records are lost: jobs may be missing, and finished jobs may be back.

	treadle journal repair treadle-data`
}

// Run repairs the directory and prints the report.
func (j *journalRepairCmd) Run(con *console) error {
	r, err := journal.Repair(j.Dir, nil)
	if err != nil {
		return err
	}
	if err := printReport(con.out, j.Dir, r, j.JSON); err != nil || j.JSON {
		return err
	}
	if len(r.Damage) == 0 {
		fmt.Fprintln(con.out, "nothing is damaged, and nothing was changed")
		return nil
	}
	fmt.Fprintf(con.out, "repaired: %s and %s are kept; what was in %s is lost\n", counted(r.Jobs+r.Documents, "record"),
		counted(r.Settings, "setting"), places(len(r.Damage)))
	if r.Duplicates > 0 {
		fmt.Fprintf(con.out, "left out: %s with the queue and name of a later one, whose end is lost\n", counted(r.Duplicates, "job"))
	}
	fmt.Fprintf(con.out, "a server can use the directory; remove %s when nothing of it is needed\n", filepath.Join(j.Dir, r.Kept))
	return nil
}

// printReport prints the report of a check or repair as a table, or as JSON.
func printReport(out io.Writer, dir string, r journal.Report, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "directory\t%s\n", dir)
	fmt.Fprintf(w, "format\t%d\n", r.Format)
	fmt.Fprintf(w, "records\t%d\n", r.Jobs+r.Documents)
	fmt.Fprintf(w, "settings\t%d\n", r.Settings)
	fmt.Fprintf(w, "last group\t%d\n", r.Group)
	fmt.Fprintf(w, "files\t%s, %s, %v\n", counted(r.Tables, "table"), counted(r.Logs, "log"), journal.Size(r.Size))
	for _, d := range r.Damage {
		fmt.Fprintf(w, "damaged\t%v\n", d)
	}
	for _, d := range r.Dropped {
		fmt.Fprintf(w, "unfinished\t%v\n", d)
	}
	if r.Kept != "" {
		fmt.Fprintf(w, "old store\t%s\n", r.Kept)
	}
	return w.Flush()
}

type journalExportCmd struct {
	Dir string `arg:"" help:"Data directory."`
}

// Help implements kong.HelpProvider.
func (journalExportCmd) Help() string {
	return `Writes to standard output: a first line {"treadle_journal":2}, then one object a line, whose kind says what it is: setting; project, numbers, definition and progress, which are kts46's; job; and the server's own notes, queue, dropped (a queue whose jobs are gone), edge (a task that waits for another) and exit (a worker that gives its tasks back). The space of a job says whose it is: 1 is Periodic, 4 dwork, 5 kts46. A task has the holder that works on it, the revision of its lease, its log (stage 1 is ready, 2 reserved; micros is since 1970) and in after the seq of the tasks that it waits for. Bytes that are not UTF-8 text stand as base64 in fields whose names end with _base64.

	treadle journal export treadle-data > jobs.jsonl
	treadle journal export treadle-data | jq -r 'select(.kind=="job" and .space==1) | .queue + " " + .name'`
}

// Run writes the export to standard output.
func (j *journalExportCmd) Run(con *console) error {
	w := bufio.NewWriterSize(con.out, 1<<20)
	err := errors.Join(journal.Export(j.Dir, w, progress(con.err, "export")), w.Flush())
	if errors.As(err, new(*journal.DamageError)) {
		return damaged(err)
	}
	return err
}

type journalImportCmd struct {
	Dir  string `arg:"" help:"Data directory; made when it does not exist."`
	File string `arg:"" optional:"" default:"-" help:"File of JSON lines, or - for standard input (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (journalImportCmd) Help() string {
	return `Takes what treadle journal export writes, and what earlier versions of it wrote; anything else is refused with its line number.

	treadle journal import treadle-data < jobs.jsonl
	treadle journal import treadle-data jobs.jsonl`
}

// Run imports the file.
func (j *journalImportCmd) Run(con *console) error {
	in := con.in
	if j.File != "-" {
		f, err := os.Open(j.File)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	return journal.Import(j.Dir, in, progress(con.err, "import"))
}
