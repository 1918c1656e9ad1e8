package ctl

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Colors of terminals.
const (
	bold    = "\x1b[1m"
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	magenta = "\x1b[35m"
	reset   = "\x1b[0m"
)

// column is the head of a table's column.
type column struct {
	title string
	right bool                     // alignment
	color func(cell string) string // nil = none
}

// table is laid out like sensuctl's: a centred title over each column, a rule, and cells of one or more lines.
type table struct {
	columns []column
	rows    [][]string
	color   bool
	widths  []int
	cut     int // the longest line; 0 = any
}

// write lays out and writes the table.
func (t *table) write(w *bufio.Writer) {
	t.measure()
	t.fit()
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		missing := t.widths[i] - displayWidth(c.title)
		titles[i] = paint(t.color, bold, pad(strings.Repeat(" ", max(0, missing/2))+cut(c.title, t.widths[i]), t.widths[i], false))
	}
	writeLine(w, titles)

	rule := make([]string, len(t.columns))
	for i, n := range t.widths {
		rule[i] = strings.Repeat("─", n+2)
	}
	rule[0] = "─" + rule[0]
	rule[len(rule)-1] += "─"
	w.WriteString(strings.Join(rule, " ") + "\n")

	for _, row := range t.rows {
		t.writeRow(w, row)
	}
}

// measure sets the widths for titles and cells; they never shrink.
func (t *table) measure() {
	if t.widths == nil {
		t.widths = make([]int, len(t.columns))
	}
	for i, c := range t.columns {
		t.widths[i] = max(t.widths[i], displayWidth(c.title))
	}
	for _, row := range t.rows {
		for i, cell := range row {
			for line := range strings.SplitSeq(cell, "\n") {
				t.widths[i] = max(t.widths[i], displayWidth(printable(line)))
			}
		}
	}
}

// writeRow writes one row in the measured widths; longer cells move the others to the right.
func (t *table) writeRow(w *bufio.Writer, row []string) {
	cells := make([][]string, len(row))
	height := 1
	for i, cell := range row {
		cells[i] = strings.Split(cell, "\n")
		height = max(height, len(cells[i]))
	}
	line := make([]string, len(row))
	for y := range height {
		for i, c := range t.columns {
			text := ""
			if y < len(cells[i]) {
				text = printable(cells[i][y])
			}
			line[i] = pad(text, t.widths[i], c.right)
			if c.color != nil {
				line[i] = paint(t.color, c.color(text), line[i])
			}
		}
		writeLine(w, line)
	}
}

// fit shortens the last columns so that lines are at most cut wide.
func (t *table) fit() {
	if t.cut == 0 {
		return
	}
	total := 0
	for i, n := range t.widths {
		room := max(0, t.cut-total-2)
		t.widths[i] = min(n, room)
		total += t.widths[i] + 3
	}
	for _, row := range t.rows {
		for i := range row {
			row[i] = cut(row[i], max(1, t.widths[i]))
		}
	}
}

func writeLine(w *bufio.Writer, cells []string) {
	w.WriteString(strings.TrimRight("  "+strings.Join(cells, "   "), " ") + "\n")
}

// infoBlock shows one resource, a line for each field.
type infoBlock struct {
	title string
	lines []infoLine
}

type infoLine struct{ label, text string }

func (b *infoBlock) write(w io.Writer, color bool) error {
	widest := 0
	for _, l := range b.lines {
		widest = max(widest, displayWidth(l.label))
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, paint(color, bold, "=== "+printable(b.title)))
	for _, l := range b.lines {
		var lines []string
		for line := range strings.SplitSeq(strings.TrimRight(l.text, "\n"), "\n") {
			lines = append(lines, printable(line))
		}
		text := pad(l.label+":", widest+2, false) + strings.Join(lines, "\n")
		fmt.Fprintln(&out, strings.TrimRight(text, " "))
	}
	_, err := out.WriteTo(w)
	return err
}

func (b *infoBlock) show(s *invocation) error { return b.write(s.out, s.color) }

func (t *table) show(s *invocation) error {
	t.color = s.color
	w := bufio.NewWriter(s.out)
	t.write(w)
	return w.Flush()
}

func paint(on bool, color, text string) string {
	if !on || color == "" {
		return text
	}
	return color + text + reset
}

// pad fills text with blanks up to n cells of the terminal.
func pad(text string, n int, right bool) string {
	blanks := strings.Repeat(" ", max(0, n-displayWidth(text)))
	if right {
		return blanks + text
	}
	return text + blanks
}

// printable makes one line of text safe for a terminal: the output of checks comes from many machines, and must not
// move the cursor or change colors.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == '\r':
			return -1
		case unicode.IsControl(r), r == utf8.RuneError:
			return '?'
		}
		return r
	}, line)
}

// displayWidth returns the cells of a terminal that a text takes.
func displayWidth(text string) int {
	n := 0
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			n++
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case isWide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

func isWide(r rune) bool {
	kind := width.LookupRune(r).Kind()
	return kind == width.EastAsianWide || kind == width.EastAsianFullwidth
}
