package report

import (
	"fmt"
	"strings"
)

// unit names what the figures per event are about.
func (r *Report) unit() string {
	if r.Turns != nil && r.Turns.Receipts {
		return "turn"
	}
	return "event"
}

// kind names the answers.
func (t *Turns) kind() string {
	if t.Receipts {
		return "receipts"
	}
	return "results"
}

// rows writes the lines about turns for a terminal.
func (t *Turns) rows(row func(name, format string, args ...any)) {
	row("turns/s", "%s answered with %s  (%s in all)", count(uint64(t.PerSecond+0.5)), t.kind(), count(t.Answered))
	row("turns received", "%s", count(t.Received))
	row("turns answered", "%s, %s of them by several agents", count(t.Different), count(t.AnsweredTwice))
	d := &t.PerAgent
	row("turns per agent", "%s to %s, mean %s, standard deviation %s",
		number(d.Min), number(d.Max), number(d.Mean), number(d.Deviation))
	var agents []string
	for _, b := range d.Bins {
		agents = append(agents, count(b.Agents))
	}
	row("  agents in bins", "%s", strings.Join(agents, " "))
}

// tiles are the figures about turns at the head of the page.
func (t *Turns) tiles() []tile {
	twice := tile{
		Name: "Turns answered twice", Value: count(t.AnsweredTwice), Class: "good",
		About: "by different agents, of " + count(t.Different) + " turns that were answered",
	}
	if t.AnsweredTwice > 0 {
		twice.Class = "unsure"
	}
	rate := tile{
		Name: "Turns", Value: number(t.PerSecond), Unit: "turns/s", Class: "wide",
		About: count(t.Answered) + " answered with " + t.kind(),
	}
	return []tile{rate, twice}
}

// binRow is a bin of a distribution on the page.
type binRow struct {
	From, To, Agents string
	Width            float64 // percent of the fullest bin
}

func (d *Distribution) rows() []binRow {
	most := 0
	for _, b := range d.Bins {
		most = max(most, b.Agents)
	}
	var out []binRow
	for _, b := range d.Bins {
		row := binRow{From: number(b.From), To: number(b.To), Agents: count(b.Agents)}
		if most > 0 {
			row.Width = 100 * float64(b.Agents) / float64(most)
		}
		out = append(out, row)
	}
	return out
}

// summary describes the distribution in a sentence.
func (d *Distribution) summary() string {
	return fmt.Sprintf("%s agents had %s to %s turns each, %s on average, with a standard deviation of %s.",
		count(d.Agents), number(d.Min), number(d.Max), number(d.Mean), number(d.Deviation))
}
