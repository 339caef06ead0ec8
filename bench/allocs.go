package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// judgeAllocations reads what benchstat says in CSV of the allocations of two runs of Go's benchmarks, the baseline first,
// and fails when a benchmark allocates more often than it did. How long it takes is another matter: that depends on the
// machine.
func judgeAllocations(in io.Reader, out io.Writer) error {
	compared, grown, err := grownAllocations(in)
	switch {
	case err != nil:
		return fmt.Errorf("cannot read benchstat's table: %w", err)
	case compared == 0:
		return errors.New("no benchmark is in both runs")
	case len(grown) > 0:
		return fmt.Errorf("more allocations than in the baseline:\n%s", strings.Join(grown, "\n"))
	}
	_, err = fmt.Fprintf(out, "%d benchmarks, none allocates more often than in the baseline\n", compared)
	return err
}

// grownAllocations lists the benchmarks whose median has grown, and says how many are in both runs. A row is name,
// baseline, its interval, now, its interval, change and its significance; lines like "pkg: name" stand between the tables.
func grownAllocations(in io.Reader) (compared int, grown []string, err error) {
	pkg := ""
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "pkg: "); ok {
			pkg = name
			continue
		}
		cells, err := csv.NewReader(strings.NewReader(line)).Read()
		if err != nil || len(cells) != 7 || cells[0] == "" || cells[0] == "geomean" || cells[1] == "" || cells[3] == "" {
			continue
		}
		before, errBefore := strconv.ParseFloat(cells[1], 64)
		after, errAfter := strconv.ParseFloat(cells[3], 64)
		if err := errors.Join(errBefore, errAfter); err != nil {
			return 0, nil, fmt.Errorf("%q: %w", line, err)
		}
		compared++
		if after > before {
			grown = append(grown, fmt.Sprintf("%s %s: %s, was %s", pkg, cells[0], cells[3], cells[1]))
		}
	}
	return compared, grown, lines.Err()
}
