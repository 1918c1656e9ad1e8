package doctor

import (
	"fmt"

	dto "github.com/prometheus/client_model/go"
)

// This file has the rules about round-robin checks.

func groupsWithoutAgents(e *exam) {
	const metric = "lapwing_queue_group_without_agent"
	n := e.after.sum(metric)
	if n == 0 {
		return
	}
	names := metricsNamed(e.after, metric, groupName, func(name string, _ float64) string { return name })
	e.find(Finding{
		Severity: Warning, Part: Schedule,
		Title: "round-robin checks have no agents",
		Detail: fmt.Sprintf("No agent is connected for %s of round-robin checks%s. Their ticks are not run there.",
			count(n, "subscription"), names),
		Advice: "Start agents with these subscriptions, or take the subscriptions from the checks.",
	})
}

// groupName names the group of a series.
func groupName(m *dto.Metric) string {
	subscription, _ := labelOf(m, "subscription")
	return subscription + " of " + checkName(m)
}

func turnsExpired(e *exam) {
	expired, given := e.grown("lapwing_queue_expired_total"), e.grown("lapwing_queue_given_total")
	if expired == 0 || given == 0 { // without agents nothing is given: that is another finding
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Schedule, Because: e.because(Disk, CPU, Log, Fold, Agents),
		Title: "round-robin checks are not run in time",
		Detail: fmt.Sprintf("%s had no result until the deadline in %s, %s had one.",
			count(expired, "tick"), duration(e.seconds), number(e.grown("lapwing_queue_answered_total"))),
		Advice: "lapwing queue list --all-namespaces shows where. Agents may hang, or their checks take longer than the time between two ticks.",
	})
}
