package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// table holds lines of cells. The first line is the heading; a line begins with the name of a row and one more cell.
type table struct {
	columns []column
	lines   [][]string
}

func newTable(second string, columns []column) *table {
	t := &table{columns: columns, lines: [][]string{{"row", second}}}
	for _, c := range columns {
		t.lines[0] = append(t.lines[0], c.heading)
	}
	return t
}

// add appends a line with a cell for the figure of each column.
func (t *table) add(first, second string, cell func(figure string) string) {
	cells := []string{first, second}
	for _, c := range t.columns {
		cells = append(cells, cell(c.figure))
	}
	t.lines = append(t.lines, cells)
}

// divide returns a divided by b, 0 when either was not measured.
func divide(a, b float64) float64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a / b
}

// ratio prints a divided by b, "-" when either was not measured.
func ratio(a, b float64) string {
	if quotient := divide(a, b); quotient != 0 {
		return fmt.Sprintf("%.2f", quotient)
	}
	return "-"
}

// number prints a value with three significant digits, "-" when it was not measured.
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

// align pads the cells of a table: text on the right, numbers on the left. The name of a row stands in its first line
// only.
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
		first := cells[0]
		if first == last {
			first = ""
		}
		last = cells[0]
		line := fmt.Sprintf("%-*s  %-*s  ", widths[0], first, widths[1], cells[1])
		for i, cell := range cells[2:] {
			line += fmt.Sprintf("%*s  ", widths[i+2], cell)
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return text.String()
}
