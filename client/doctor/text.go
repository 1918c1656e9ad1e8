package doctor

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// WriteText writes a report for people.
func WriteText(w io.Writer, r *Report) error {
	var b strings.Builder
	s := r.Summary
	fmt.Fprintf(&b, "lapwing %s, up %s", s.Version, duration(s.Uptime))
	if r.Seconds > 0 {
		fmt.Fprintf(&b, ", observed for %s", duration(r.Seconds))
	}
	b.WriteString("\n")
	if s.Events {
		fmt.Fprintf(&b, "%s, %s known; %s events/s received, %s folded, %s deliveries/s to handlers\n",
			count(s.Agents, "agent"), count(s.Pairs, "check"), number(s.Received), number(s.Folded), number(s.Dispatched))
	}
	if s.Metrics {
		fmt.Fprintf(&b, "metrics: %s series in memory; %s points/s received, %s stored\n", number(s.Series), number(s.Points), number(s.Stored))
	}
	writeFindings(&b, r.Findings)
	switch {
	case len(r.Limits) > 0:
		fmt.Fprintf(&b, "\nWhat limits it now: %s.\n", strings.Join(r.Limits, ", "))
	case r.Seconds == 0:
		b.WriteString("\nOne scrape cannot show what limits it now.\n")
	case len(r.Findings) > 0:
		b.WriteString("\nNothing limits it now.")
		if r.Severity != Fine {
			fmt.Fprintf(&b, " The exit status is %d, for what is %s above.", r.Severity, strings.ToUpper(r.Severity.String()))
		}
		b.WriteString("\n")
	default:
		b.WriteString("\nNo findings: nothing limits it now.\n")
	}
	b.WriteString("\nIn use:\n")
	width := 0
	for _, u := range r.Use {
		width = max(width, len([]rune(nameOf(u.Part, u.Subject))))
	}
	for _, u := range r.Use {
		fmt.Fprintf(&b, "  %-*s %4s  %s\n", width, nameOf(u.Part, u.Subject), percent(u.Share), u.Text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFindings(b *strings.Builder, findings []Finding) {
	for i := range findings {
		f := &findings[i]
		label := strings.ToUpper(f.Severity.String())
		if f.Severity == Fine {
			label = "NOTE"
		}
		fmt.Fprintf(b, "\n%s %s: %s\n", label, f.Name(), f.Title)
		paragraph(b, "  ", f.Detail)
		if f.Because != "" {
			paragraph(b, "  → ", fmt.Sprintf("This follows from the finding about %s.", f.Because))
		} else {
			paragraph(b, "  → ", f.Advice)
		}
		if f.Present != "" {
			paragraph(b, "    ", fmt.Sprintf("Now %s, recommended %s.", f.Present, f.Recommended))
		}
		for _, sql := range f.SQL {
			b.WriteString("      " + sql + "\n")
		}
	}
}

// WritePostgresText writes a report about PostgreSQL for people.
func WritePostgresText(w io.Writer, r *PostgresReport) error {
	var b strings.Builder
	b.WriteString(r.Server + "\n")
	for _, line := range r.Summary {
		b.WriteString(line + "\n")
	}
	writeFindings(&b, r.Findings)
	if len(r.Findings) == 0 {
		b.WriteString("\nNo findings.\n")
	}
	if len(r.Unread) > 0 {
		b.WriteString("\nNot examined:\n")
	}
	for _, line := range r.Unread {
		paragraph(&b, "  - ", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// paragraph breaks text into lines. The first begins with head, the others are indented as far.
func paragraph(b *strings.Builder, head, text string) {
	const width = 110
	indent := strings.Repeat(" ", len([]rune(head)))
	line := head
	fresh := true
	for _, word := range strings.Fields(text) {
		if !fresh && len([]rune(line))+1+len([]rune(word)) > width {
			b.WriteString(line + "\n")
			line, fresh = indent, true
		}
		if !fresh {
			line += " "
		}
		line += word
		fresh = false
	}
	b.WriteString(line + "\n")
}

// number is a count or a rate with three digits or so, and commas.
func number(n float64) string {
	switch {
	case n == 0 || n >= 10:
		return commas(strconv.FormatFloat(math.Round(n), 'f', 0, 64))
	case n == math.Trunc(n):
		return strconv.FormatFloat(n, 'f', 0, 64)
	case n >= 0.1:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'g', 1, 64)
}

func commas(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// count writes a number with its noun, in the plural if necessary.
func count(n float64, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	default:
		noun += "s"
	}
	return number(n) + " " + noun
}

func bytes(n float64) string {
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if n < 1000 {
			return short(n) + " " + unit
		}
		n /= 1000
	}
	return short(n) + " TB"
}

// duration writes a time in seconds.
func duration(s float64) string {
	switch {
	case math.IsInf(s, 1):
		return "more than can be told"
	case s == 0:
		return "0 s"
	case s < 0.001:
		return short(s*1e6) + " µs"
	case s < 1:
		return short(s*1e3) + " ms"
	case s < 120:
		return short(s) + " s"
	case s < 2*3600:
		return short(s/60) + " min"
	case s < 48*3600:
		return short(s/3600) + " h"
	}
	return short(s/86400) + " days"
}

// short writes at least two digits.
func short(n float64) string {
	if n < 10 {
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0")
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

func percent(share float64) string {
	if math.IsInf(share, 0) || math.IsNaN(share) {
		return "?"
	}
	return strconv.FormatFloat(math.Round(share*100), 'f', 0, 64) + "%"
}
