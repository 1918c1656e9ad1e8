package extract

import (
	"fmt"
	"strconv"
	"strings"
)

// nagios reads "text | label=value[unit][;warn;crit;min;max] ...". It reads neither quoted labels nor performance data
// over several lines with a bar each.
func (p *parser) nagios(output string) {
	_, perfdata, found := strings.Cut(output, "|")
	if !found || strings.Contains(perfdata, "|") {
		p.skip(output, errPerfdata)
		return
	}
	for token := range strings.SplitSeq(strings.TrimSpace(perfdata), " ") {
		if token = strings.TrimSpace(token); token == "" {
			continue
		}
		measured, _, _ := strings.Cut(token, ";")
		label, err := pair(measured)
		if err != nil {
			p.skip(token, err)
			continue
		}
		value, err := strconv.ParseFloat(strings.Map(numeric, label.Value), 64)
		if err != nil {
			p.skip(token, fmt.Errorf("parse value: %w", err))
			continue
		}
		p.add(label.Name, value, p.executed, p.tags)
	}
}

// numeric keeps the characters of a label's value and drops its unit.
func numeric(r rune) rune {
	if r == '-' || r == '.' || (r >= '0' && r <= '9') {
		return r
	}
	return -1
}
