package extract

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// openTSDBLine reads "name timestamp value tag=value...", without the "put" of OpenTSDB's telnet protocol.
func (p *parser) openTSDBLine(line string) error {
	fields := strings.Split(line, " ")
	if len(fields) < 4 {
		return errOpenTSDB
	}
	timestamp, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return fmt.Errorf("parse timestamp: %w", err)
	}
	if len(fields[1]) == 13 { // milliseconds
		timestamp /= 1000
	}
	value, err := strconv.ParseFloat(fields[2], 64)
	if err != nil {
		return fmt.Errorf("parse value: %w", err)
	}
	tags := make([]resource.MetricTag, 0, len(fields)-3)
	for _, text := range fields[3:] {
		tag, err := pair(text)
		if err != nil {
			return fmt.Errorf("parse tag: %w", err)
		}
		tags = append(tags, tag)
	}
	p.add(fields[0], value, timestamp, tags, p.tags)
	return nil
}
