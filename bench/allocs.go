package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// judgeAllocations reads benchstat's CSV of the allocations in two runs of Go's benchmarks, the baseline first. It fails when
// a benchmark allocates more often than in the baseline. It ignores times, which depend on the machine.
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

// grownAllocations lists the benchmarks whose median has grown, and counts those in both runs. A record is name, baseline,
// its interval, now, its interval, change and its significance; records like "pkg: name" stand between the tables.
func grownAllocations(in io.Reader) (compared int, grown []string, err error) {
	table := csv.NewReader(in)
	table.FieldsPerRecord = -1
	records, err := table.ReadAll()
	pkg := ""
	for _, r := range records {
		if name, ok := strings.CutPrefix(r[0], "pkg: "); ok {
			pkg = name
		}
		if len(r) < 7 || r[0] == "" || r[0] == "geomean" || r[1] == "" || r[3] == "" {
			continue
		}
		before, errBefore := strconv.ParseFloat(r[1], 64)
		after, errAfter := strconv.ParseFloat(r[3], 64)
		if err := errors.Join(errBefore, errAfter); err != nil {
			return 0, nil, fmt.Errorf("%q: %w", r, err)
		}
		compared++
		if after > before {
			grown = append(grown, fmt.Sprintf("%s %s: %s, was %s", pkg, r[0], r[3], r[1]))
		}
	}
	return compared, grown, err
}
