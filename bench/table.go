package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// heading is the first line of a table whose lines begin with a row's name and one more cell.
func heading(second string, columns []column) []string {
	cells := []string{"row", second}
	for _, c := range columns {
		cells = append(cells, c.heading)
	}
	return cells
}

// line is one line of it, with a cell for the value of each column.
func line(first, second string, columns []column, cell func(value string) string) []string {
	cells := []string{first, second}
	for _, c := range columns {
		cells = append(cells, cell(c.value))
	}
	return cells
}

// divide is 0 when either was not measured.
func divide(a, b float64) float64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a / b
}

// ratio is a divided by b, or "-" when either was not measured.
func ratio(a, b float64) string {
	if divide(a, b) == 0 {
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
