package extract

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// graphiteLine reads "path[;tag=value...] value timestamp".
func (p *parser) graphiteLine(line string) error {
	fields := strings.Split(line, " ")
	if len(fields) != 3 {
		return errGraphite
	}
	path, tagText, tagged := strings.Cut(fields[0], ";")
	var tags []resource.MetricTag
	if tagged {
		for text := range strings.SplitSeq(tagText, ";") {
			tag, err := pair(text)
			if err != nil {
				return fmt.Errorf("parse tag: %w", err)
			}
			tags = append(tags, tag)
		}
	}
	value, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return fmt.Errorf("parse value: %w", err)
	}
	timestamp, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return fmt.Errorf("parse timestamp: %w", err)
	}
	p.add(path, value, timestamp, p.tags, tags)
	return nil
}
