package extract

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// influxLine reads "measurement[,tag=value...] field=value[,field=value...] [timestamp]" and makes a point of each
// field. A field that is no plain number (an integer's "i" suffix, a string, a boolean) invalidates its line.
func (p *parser) influxLine(line string) error {
	parts := splitUnescaped(line, ' ')
	if len(parts) != 2 && len(parts) != 3 {
		return errInflux
	}
	series := splitUnescaped(parts[0], ',')
	var tags []resource.MetricTag
	for _, text := range series[1:] {
		kv := splitUnescaped(text, '=')
		if len(kv) != 2 {
			return fmt.Errorf("parse tag: %w", errPair)
		}
		tags = append(tags, resource.MetricTag{Name: unescape(kv[0]), Value: unescape(kv[1])})
	}

	type field struct {
		name  string
		value float64
	}
	var fields []field
	for _, text := range splitUnescaped(parts[1], ',') {
		kv := splitUnescaped(text, '=')
		if len(kv) != 2 {
			return fmt.Errorf("parse field: %w", errPair)
		}
		value, err := strconv.ParseFloat(kv[1], 64)
		if err != nil {
			return fmt.Errorf("parse field: %w", err)
		}
		fields = append(fields, field{unescape(kv[0]), value})
	}

	timestamp := p.now().Unix()
	if len(parts) == 3 {
		// The first ten digits are seconds until the year 2286, whatever unit further digits add.
		text := parts[2]
		if len(text) > 10 {
			text = text[:10]
		}
		var err error
		if timestamp, err = strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("parse timestamp: %w", err)
		}
	}
	measurement := unescape(series[0])
	for _, f := range fields {
		p.add(measurement+"."+f.name, f.value, timestamp, tags, p.tags)
	}
	return nil
}

// splitUnescaped splits at each sep that no backslash precedes, and leaves the backslashes in place.
func splitUnescaped(s string, sep byte) []string {
	var parts []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case sep:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// unescape replaces a backslash and the character after it by that character.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			if i++; i == len(s) {
				break
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
