package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ratios compares each Treadle with each peer of the same row, or with the Treadle that it is a variant of: its value
// divided by the other's.
func (r *report) ratios() [][]string {
	table := [][]string{{
		"row", "ratio", "jobs/s", "CPU", "submit p50", "p99", "p99.9", "to worker p50", "p99", "p99.9", "memory",
	}}
	for _, our := range r.Medians {
		if !r.ours[our.Server] || our.Section != periodicSection {
			continue
		}
		for _, peer := range r.Medians {
			if peer.Row != our.Row || peer.Section != our.Section || !r.compares(our.Server, peer.Server) {
				continue
			}
			cells := []string{
				our.Row, our.Server + " / " + peer.Server,
				ratio(our.JobsPerSecond, peer.JobsPerSecond), ratio(our.ServerCPU, peer.ServerCPU),
				ratio(our.Submit.P50, peer.Submit.P50), ratio(our.Submit.P99, peer.Submit.P99),
				ratio(our.Submit.P999, peer.Submit.P999),
				ratio(our.ToWorker.P50, peer.ToWorker.P50), ratio(our.ToWorker.P99, peer.ToWorker.P99),
				ratio(our.ToWorker.P999, peer.ToWorker.P999),
				ratio(our.QueuedMB+our.IdleKB, peer.QueuedMB+peer.IdleKB),
			}
			switch our.Rate {
			case 0: // how long jobs wait in a closed loop says who was ahead, the producers or the workers
				cells[7], cells[8], cells[9] = "-", "-", "-"
			default: // everyone keeps up, or the latencies say so
				cells[2] = "-"
			}
			table = append(table, cells)
		}
	}
	return table
}

// compares says whether the table has the ratio of these two.
func (r *report) compares(our, other string) bool {
	if base := r.base[our]; base != "" {
		return other == base
	}
	return !r.ours[other]
}

// rowRatios compares rows of a section with the rows that they name.
func (r *report) rowRatios(part section) [][]string {
	table := [][]string{{"row", "divided by", "jobs/s", "CPU", "submit p99", "p99.9", "KB/conn", "connect us"}}
	for _, a := range r.Medians {
		for _, b := range r.Medians {
			if a.Section == part && a.against == b.Row && a.Server == b.Server {
				table = append(table, []string{a.Row, b.Row, ratio(a.JobsPerSecond, b.JobsPerSecond), ratio(a.ServerCPU, b.ServerCPU),
					ratio(a.Submit.P99, b.Submit.P99), ratio(a.Submit.P999, b.Submit.P999), ratio(a.IdleKB, b.IdleKB), ratio(a.ConnectCPU, b.ConnectCPU)})
			}
		}
	}
	return table
}

// ratio is a divided by b, or "-" when either was not measured.
func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// number prints a value with three digits that mean something, and "-" for one that was not measured.
func number(value float64) string {
	switch {
	case value == 0:
		return "-"
	case value < 10:
		return fmt.Sprintf("%.2f", value)
	case value < 100:
		return fmt.Sprintf("%.1f", value)
	}
	digits := fmt.Sprintf("%.0f", value)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// align pads the cells of a table: the first two columns to the right, the numbers to the left. The first line is the
// heading, and a row's name stands in its first line only.
func align(table [][]string) string {
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	last := ""
	for _, cells := range table {
		var line strings.Builder
		for i, cell := range cells {
			if i == 0 && cell == last {
				cell = ""
			} else if i == 0 {
				last = cell
			}
			if i < 2 {
				fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
			} else {
				fmt.Fprintf(&line, "%*s  ", widths[i], cell)
			}
		}
		text.WriteString(strings.TrimRight(line.String(), " "))
		text.WriteByte('\n')
	}
	return text.String()
}
