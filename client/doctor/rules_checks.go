package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// This file has the rules about checks that agents do not run as they should.

// mostChecks is how many checks a finding names.
const mostChecks = 10

func lateChecks(e *exam) {
	n := e.after.sum("lapwing_checks_late")
	if n == 0 {
		return
	}
	names := checksOf(e.after, "lapwing_check_lateness_seconds", func(name string, seconds float64) string {
		return fmt.Sprintf("%s (for %s)", name, duration(seconds))
	})
	e.find(Finding{
		Severity: Warning, Part: Schedule, Because: e.because(Disk, CPU, Log, Fold, Agents),
		Title:  "checks are late",
		Detail: fmt.Sprintf("No agent has sent a result of %s in time%s.", count(n, "check"), names),
		Advice: "lapwing check list --all-namespaces shows when each check last ran, and why no agent runs it. After three missing runs the " +
			"entity lapwing-backend has an event late-check-NAME, or late-checks for many, which says what to do.",
	})
}

func checksWithoutAgent(e *exam) {
	n := e.after.sum("lapwing_check_without_agent")
	if n == 0 {
		return
	}
	names := checksOf(e.after, "lapwing_check_without_agent", func(name string, _ float64) string { return name })
	e.find(Finding{
		Severity: Warning, Part: Schedule,
		Title:  "no agent runs some checks",
		Detail: fmt.Sprintf("No connected agent has any of the subscriptions of %s%s.", count(n, "published check"), names),
		Advice: "Start agents with these subscriptions, or give the checks others (lapwing check set-subscriptions). A check " +
			"that is not to run needs publish: false (lapwing check set-publish NAME false).",
	})
}

// checksOf lists the checks in a metric that are not 0, the highest first, for example ": disk in default".
func checksOf(s *Scrape, metric string, text func(name string, value float64) string) string {
	return metricsNamed(s, metric, checkName, text)
}

// checkName names the check of a series.
func checkName(m *dto.Metric) string {
	check, _ := labelOf(m, "check")
	namespace, _ := labelOf(m, "namespace")
	return check + " in " + namespace
}

// metricsNamed lists the series of a metric that are not 0, the highest first, by their names.
func metricsNamed(s *Scrape, metric string, name func(*dto.Metric) string, text func(name string, value float64) string) string {
	found := slices.DeleteFunc(slices.Clone(s.Families[metric].GetMetric()), func(m *dto.Metric) bool { return value(m) == 0 })
	slices.SortFunc(found, func(a, b *dto.Metric) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), strings.Compare(name(a), name(b)))
	})
	var names []string
	for _, m := range found[:min(len(found), mostChecks)] {
		names = append(names, text(name(m), value(m)))
	}
	if more := len(found) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}
