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

// lateChecks finds checks that are late though an agent has their subscriptions. That no agent has them explains the lateness of
// the others: these are in the finding of checksWithoutAgent.
func lateChecks(e *exam) {
	without := byCheck(e.after, "lapwing_check_without_agent")
	n := e.after.sum("lapwing_checks_late")
	for name := range byCheck(e.after, "lapwing_check_lateness_seconds") {
		if without[name] != 0 {
			n--
		}
	}
	if n <= 0 {
		return
	}
	names := checksOf(e.after, "lapwing_check_lateness_seconds", func(name string, late float64) string {
		if without[name] != 0 {
			return ""
		}
		return fmt.Sprintf("%s (for %s)", name, duration(late))
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
	late := byCheck(e.after, "lapwing_check_lateness_seconds")
	names := checksOf(e.after, "lapwing_check_without_agent", func(name string, _ float64) string {
		if late[name] > 0 {
			return fmt.Sprintf("%s (late for %s)", name, duration(late[name]))
		}
		return name
	})
	e.find(Finding{
		Severity: Warning, Part: Schedule,
		Title:  "no agent runs some checks",
		Detail: fmt.Sprintf("No connected agent has any of the subscriptions of %s%s.", count(n, "published check"), names),
		Advice: "Start agents with these subscriptions, or give the checks others (lapwing check set-subscriptions). A check " +
			"that is not to run needs publish: false (lapwing check set-publish NAME false).",
	})
}

// byCheck returns the values of a metric of checks by checkName, without those that are 0.
func byCheck(s *Scrape, metric string) map[string]float64 {
	values := map[string]float64{}
	for _, m := range s.Families[metric].GetMetric() {
		if v := value(m); v != 0 {
			values[checkName(m)] = v
		}
	}
	return values
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

// metricsNamed lists the series of a metric that are not 0, the highest first, by their names; without those of which text is "".
func metricsNamed(s *Scrape, metric string, name func(*dto.Metric) string, text func(name string, value float64) string) string {
	found := slices.DeleteFunc(slices.Clone(s.Families[metric].GetMetric()), func(m *dto.Metric) bool {
		return value(m) == 0 || text(name(m), value(m)) == ""
	})
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
