package ctl

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Colors of terminals.
const (
	bold    = "\x1b[1m"
	dim     = "\x1b[2m"
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
	// text says that cells may be long, and are cut first where a line is too long. Only the first line of a cell is shown
	// there.
	text bool
	keep bool // the column is not left out where a line is too long; the first one never is
	wide bool // the column is only in wide tables
	dims bool // rows that have "true" in the column are dimmed
}

// table is laid out like sensuctl's: a centred title over each column, a rule, and cells of one or more lines.
type table struct {
	columns []column
	rows    [][]string
	color   bool
	widths  []int
	cut     int // the longest line; 0 = any
	hidden  []string
}

// write lays out and writes the table.
func (t *table) write(w *bufio.Writer) {
	t.firstLines()
	t.measure()
	dimmed := make([]bool, len(t.rows)) // before columns are left out
	for i, row := range t.rows {
		dimmed[i] = t.dimmed(row)
	}
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
	w.WriteString(cutRule(strings.Join(rule, " "), t.cut) + "\n")

	for i, row := range t.rows {
		t.writeRow(w, row, dimmed[i])
	}
}

func (t *table) dimmed(row []string) bool {
	for i, c := range t.columns {
		if c.dims && row[i] == yesNo(true) {
			return true
		}
	}
	return false
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
func (t *table) writeRow(w *bufio.Writer, row []string, dimmed bool) {
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
			shade := ""
			if c.color != nil {
				shade = c.color(text)
			}
			if dimmed && text != "" {
				shade = dim + shade
			}
			line[i] = paint(t.color, shade, line[i])
		}
		writeLine(w, line)
	}
}

// firstLines leaves the first line of long texts, if lines have a bound.
func (t *table) firstLines() {
	for i, c := range t.columns {
		if !c.text || t.cut == 0 {
			continue
		}
		for _, row := range t.rows {
			if first, _, more := strings.Cut(strings.TrimSpace(row[i]), "\n"); more {
				row[i] = strings.TrimSpace(first) + " …"
			}
		}
	}
}

const (
	indent, gap = 2, 3 // cells before a line and between columns
	// leastText is how narrow columns of text become before others are left out, and leastOther how narrow those become if
	// nothing else helps.
	leastText, leastOther = 20, 8
)

// over returns by how many cells lines are too long.
func (t *table) over() int {
	total := indent + gap*(len(t.widths)-1)
	for _, n := range t.widths {
		total += n
	}
	return total - t.cut
}

// fit makes lines at most cut wide: it narrows texts, leaves out columns from the right, gives texts the room that this
// left, and in the end cuts what is widest.
func (t *table) fit() {
	if t.cut == 0 || t.over() <= 0 {
		return
	}
	natural := slices.Clone(t.widths)
	t.shrink(leastText, func(c column) bool { return c.text })
	for i := len(t.columns) - 1; i > 0 && t.over() > 0; i-- {
		if t.columns[i].keep || t.columns[i].text {
			continue
		}
		natural = slices.Delete(natural, i, i+1)
		t.leaveOut(i)
	}
	for i, c := range t.columns {
		if c.text && t.over() < 0 {
			t.widths[i] = min(natural[i], t.widths[i]-t.over())
		}
	}
	t.shrink(leastOther, func(column) bool { return true })
	t.shrink(1, func(column) bool { return true })
	for _, row := range t.rows {
		for i := range row {
			lines := strings.Split(row[i], "\n")
			for y := range lines {
				lines[y] = cut(printable(lines[y]), max(1, t.widths[i]))
			}
			row[i] = strings.Join(lines, "\n")
		}
	}
}

// shrink narrows the widest of some columns, again and again, until lines are short enough or all have the least width.
func (t *table) shrink(least int, of func(column) bool) {
	for t.over() > 0 {
		widest := -1
		for i, c := range t.columns {
			if of(c) && t.widths[i] > least && (widest < 0 || t.widths[i] > t.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

// leaveOut removes a column.
func (t *table) leaveOut(i int) {
	t.hidden = append(t.hidden, t.columns[i].title)
	t.columns = slices.Delete(slices.Clone(t.columns), i, i+1)
	t.widths = slices.Delete(t.widths, i, i+1)
	for r := range t.rows {
		t.rows[r] = slices.Delete(t.rows[r], i, i+1)
	}
}

// narrowed returns the table without the columns that only wide tables have.
func (t *table) narrowed() *table {
	for i := len(t.columns) - 1; i >= 0; i-- {
		if t.columns[i].wide {
			t.columns = slices.Delete(slices.Clone(t.columns), i, i+1)
			for r := range t.rows {
				t.rows[r] = slices.Delete(t.rows[r], i, i+1)
			}
		}
	}
	return t
}

// print writes a table as the command's output: in the terminal's width, unless it is to be wide.
func (s *invocation) print(w *bufio.Writer, t *table) {
	t.color = s.color
	if !s.wide {
		t.narrowed()
		t.cut = s.width
	}
	t.write(w)
	if len(t.hidden) > 0 {
		slices.Reverse(t.hidden)
		fmt.Fprintln(w, cut("  -o wide also shows: "+strings.Join(t.hidden, ", "), t.cut))
	}
}

// cutRule cuts a rule to the width of lines.
func cutRule(rule string, width int) string {
	if width == 0 || displayWidth(rule) <= width {
		return rule
	}
	return string([]rune(rule)[:width])
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
	w := bufio.NewWriter(s.out)
	s.print(w, t)
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

// printableText is printable for a text of several lines.
func printableText(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for j := range parts {
			parts[j] = printable(parts[j])
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
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

// cut shortens a text to n cells of the terminal; 0 means no limit.
func cut(text string, n int) string {
	if n <= 0 || displayWidth(text) <= n {
		return text
	}
	width := 0
	for i, r := range text {
		width += displayWidth(string(r))
		if width > n-1 {
			return text[:i] + "…"
		}
	}
	return text
}
