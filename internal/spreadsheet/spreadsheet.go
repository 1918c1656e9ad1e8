// Package spreadsheet makes text safe for programs that open CSV. Everything that writes names and outputs as CSV calls it.
package spreadsheet

import "strings"

// Cell returns text for a cell. Text that a spreadsheet would run as a formula gets an apostrophe, which the spreadsheet
// does not show.
func Cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// Row makes each cell of a row safe, in place.
func Row(cells []string) []string {
	for i, cell := range cells {
		cells[i] = Cell(cell)
	}
	return cells
}
