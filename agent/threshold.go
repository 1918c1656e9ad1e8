package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// evaluateThresholds returns the highest status of all thresholds that the points break, and annotations that explain
// it.
func evaluateThresholds(points []resource.MetricPoint, thresholds []resource.MetricThreshold) (status uint32, annotations map[string]string) {
	annotations = map[string]string{}
	var worst string
	broken := func(t *resource.MetricThreshold, bound string, s uint32, text string) {
		annotations[thresholdKey(t, bound, s)] = text
		if s > status {
			status, worst = s, text
		}
	}
	for i := range thresholds {
		t := &thresholds[i]
		matched := false
		for j := range points {
			p := &points[j]
			if !matches(t, p) {
				continue
			}
			matched = true
			for _, rule := range t.Thresholds {
				if bound, limit := brokenBound(rule, p.Value); bound != "" {
					broken(t, bound, rule.Status, exceededText(t, bound, limit, p.Value))
				}
			}
		}
		if !matched && t.NullStatus > 0 {
			broken(t, "null-status", t.NullStatus, missingText(t))
		}
	}
	if worst != "" {
		annotations["sensu.io/notifications/"+statusCaption(status)] = worst
	}
	return status, annotations
}

func matches(t *resource.MetricThreshold, p *resource.MetricPoint) bool {
	if t.Name != p.Name {
		return false
	}
	for _, want := range t.Tags {
		if !slices.Contains(p.Tags, resource.MetricTag(want)) {
			return false
		}
	}
	return true
}

// brokenBound returns the bound of the rule that value breaks, and its text. An invalid bound ends the rule.
func brokenBound(rule resource.MetricThresholdRule, value float64) (bound, limit string) {
	if rule.Min != "" {
		lowest, err := strconv.ParseFloat(rule.Min, 64)
		if err != nil {
			return "", ""
		}
		if value < lowest {
			return "min", rule.Min
		}
	}
	if rule.Max != "" {
		highest, err := strconv.ParseFloat(rule.Max, 64)
		if err == nil && value > highest {
			return "max", rule.Max
		}
	}
	return "", ""
}

func thresholdKey(t *resource.MetricThreshold, bound string, status uint32) string {
	name := t.Name
	for _, tag := range t.Tags {
		name += "." + tag.Value
	}
	return "sensu.io/output_metric_thresholds/" + name + "/" + bound + "/" + statusCaption(status)
}

func exceededText(t *resource.MetricThreshold, bound, limit string, value float64) string {
	return fmt.Sprintf("The value of %s%s exceeded the configured threshold (%s: %s, actual: %s).",
		t.Name, tagText(t, ",", "%s=%s"), bound, limit, strconv.FormatFloat(value, 'f', -1, 64))
}

func missingText(t *resource.MetricThreshold) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s : no metric matching \"%s\"%s was found", strings.ToUpper(statusCaption(t.NullStatus)), t.Name, tagText(t, ", ", `%s="%s"`))
	for _, rule := range t.Thresholds {
		var bounds []string
		if rule.Min != "" {
			bounds = append(bounds, "min: "+rule.Min)
		}
		if rule.Max != "" {
			bounds = append(bounds, "max: "+rule.Max)
		}
		fmt.Fprintf(&b, "; expected %s (status: %s)", strings.Join(bounds, " - "), statusCaption(rule.Status))
	}
	return b.String()
}

// tagText is the threshold's tags in brackets, or nothing if it has none.
func tagText(t *resource.MetricThreshold, separator, format string) string {
	if len(t.Tags) == 0 {
		return ""
	}
	var tags []string
	for _, tag := range t.Tags {
		tags = append(tags, fmt.Sprintf(format, tag.Name, tag.Value))
	}
	return " (" + strings.Join(tags, separator) + ")"
}

func statusCaption(status uint32) string {
	switch status {
	case 0:
		return "ok"
	case 1:
		return "warning"
	case 2:
		return "critical"
	}
	return "unknown"
}
