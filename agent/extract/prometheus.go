package extract

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// prometheus reads the text exposition format. After a line that does not parse, the families read before it are kept.
// Points come out in the order of family names, with tags in the order of theirs.
func (p *parser) prometheus(output string) {
	if output != "" && !strings.HasSuffix(output, "\n") {
		output += "\n" // the format needs a final newline, which commands forget
	}
	families, err := parseText(output)
	if err != nil {
		p.skip("", err)
	}
	opts := &expfmt.DecodeOptions{Timestamp: model.TimeFromUnix(p.now().Unix())}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		family := families[name]
		samples, err := expfmt.ExtractSamples(opts, family)
		if err != nil {
			p.skip(name, fmt.Errorf("read family: %w", err))
		}
		extra := []resource.MetricTag{{Name: "prom_type", Value: strings.ToLower(family.GetType().String())}}
		if help := family.GetHelp(); help != "" {
			extra = append(extra, resource.MetricTag{Name: "prom_help", Value: help})
		}
		for _, sample := range samples {
			if !math.IsNaN(float64(sample.Value)) {
				p.addSample(sample, extra)
			}
		}
	}
}

// parseText returns the families up to the first error. The library's parser panics on some malformed lines, for
// example "{}" on a line of its own; a check's output must not end the agent.
func parseText(output string) (families map[string]*dto.MetricFamily, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			families, err = nil, fmt.Errorf("parser gave up: %v", cause)
		}
	}()
	text := expfmt.NewTextParser(model.UTF8Validation)
	return text.TextToMetricFamilies(strings.NewReader(output))
}

// addSample adds one sample. Where names collide, the family's extra tags beat the sample's labels and the check's own
// tags beat both.
func (p *parser) addSample(sample *model.Sample, extra []resource.MetricTag) {
	merged := make(map[string]string, len(sample.Metric)+len(extra)+len(p.tags))
	for name, value := range sample.Metric {
		if name != model.MetricNameLabel {
			merged[string(name)] = string(value)
		}
	}
	for _, tag := range extra {
		merged[tag.Name] = tag.Value
	}
	for _, tag := range p.tags {
		merged[tag.Name] = tag.Value
	}
	tags := make([]resource.MetricTag, 0, len(merged))
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		tags = append(tags, resource.MetricTag{Name: name, Value: merged[name]})
	}
	p.add(string(sample.Metric[model.MetricNameLabel]), float64(sample.Value), sample.Timestamp.Unix(), tags)
}
