package doctor

import (
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// This file has the rules between the fold and the handlers' receivers.

const (
	// slowFilter is the mean run of a slow filter of a user, in seconds, and slowFilterRuns how many runs are needed to
	// judge.
	slowFilter     = 0.005
	slowFilterRuns = 20
	// manyGroups is more groups than a configuration can mean.
	manyGroups = 1000
)

// filterErrors distinguishes expressions that are wrong from those that take too many resources.
func filterErrors(e *exam) {
	failed := e.grownBy("lapwing_filter_errors_total", "reason")
	var wrong, greedy []string
	for reason, n := range sorted(failed) {
		switch reason {
		case "timeout", "memory", "suspended", "busy":
			greedy = append(greedy, fmt.Sprintf("%s %s", number(n), map[string]string{
				"timeout": "out of time", "memory": "out of memory", "suspended": "not asked because of earlier ones",
				"busy": "not asked because no worker was free in time"}[reason]))
		default:
			wrong = append(wrong, fmt.Sprintf("%s (%s)", number(n), reason))
		}
	}
	if len(greedy) > 0 {
		e.find(Finding{
			Severity: Warning, Part: Pipeline,
			Title:  "a filter takes more time or memory than it may have",
			Detail: fmt.Sprintf("Of its expressions in %s: %s. They are ignored, as Sensu ignores those that fail, so an allow filter lets everything through; other filters go on.", duration(e.seconds), strings.Join(greedy, ", ")),
			Advice: "The backend's log names the filter and its expression; lapwing event trace shows what it did to an event. Mend or delete it.",
		})
	}
	if len(wrong) > 0 {
		e.find(Finding{
			Severity: Warning, Part: Pipeline,
			Title:  "filters give no answer and are ignored",
			Detail: fmt.Sprintf("Expressions that failed in %s: %s. An allow filter whose expressions fail lets everything through.", duration(e.seconds), strings.Join(wrong, ", ")),
			Advice: "The backend's log names the filter and the error; lapwing event trace shows it with the values that it saw. Try a correction with lapwing pipeline simulate.",
		})
	}
}

// setAside reports expressions that do not run any more, and names their definitions.
func setAside(e *exam) {
	n := e.after.sum("lapwing_expression_set_aside")
	if n == 0 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Pipeline,
		Title: "expressions are not run any more",
		Detail: fmt.Sprintf("Three worker processes died of each of %s%s. A filter's counts as one that throws, so an allow filter lets "+
			"everything through; a mutator fails; a check with it has no proxy entities.", number(n), setAsideNames(e.after)),
		Advice: "The events of the entity lapwing-backend show the expressions, as does the backend's log. Change or delete the definitions.",
	})
}

// setAsideNames lists the first definitions, for example ": filter bomb in default".
func setAsideNames(s *Scrape) string {
	const most = 5
	var names []string
	for _, m := range s.Families["lapwing_expression_set_aside_definition"].GetMetric() {
		kind, _ := labelOf(m, "kind")
		name, _ := labelOf(m, "name")
		if namespace, _ := labelOf(m, "namespace"); namespace != "" {
			name += " in " + namespace
		}
		names = append(names, kind+" "+name)
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %s", count(float64(more), "more definition")))
	}
	return ": " + strings.Join(names, ", ")
}

// workers reports that worker processes cannot start.
func workers(e *exam) {
	failed := e.grownBy("lapwing_expression_worker_deaths_total", "reason")["start"]
	if failed == 0 {
		return
	}
	e.find(Finding{
		Severity: Critical, Part: Pipeline,
		Title: "filters and mutators of users are not run",
		Detail: fmt.Sprintf("Worker processes could not be started: %s in %s. Allow filters let everything through meanwhile.",
			number(failed), duration(e.seconds)),
		Advice: "The backend's log and GET /ready say why. A worker is the backend's own program, started again: look for " +
			"limits on processes and memory.",
	})
}

func filterSpeed(e *exam) {
	h := e.histogram("lapwing_filter_seconds")
	if h.count < slowFilterRuns || below(h, 0.99) < slowFilter && h.mean() < slowFilter {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Pipeline, Because: e.because(CPU),
		Title:  "filters are slow",
		Detail: fmt.Sprintf("Of %s asked in %s, the mean took %s and one in a hundred %s or more; together %s of a core.", number(h.count), duration(e.seconds), duration(h.mean()), duration(below(h, 0.99)), percent(e.perSecond(h.sum))),
		Advice: "lapwing event trace shows how long each filter of an event took. A simple expression takes some microseconds; loops and look-ups of other events take longer.",
	})
}

// escalations finds those that have no further step while their check fails.
func escalations(e *exam) {
	n := e.after.sum("lapwing_handler_escalations_given_up")
	if n == 0 {
		return
	}
	names := metricsNamed(e.after, "lapwing_handler_escalation_gave_up", func(m *dto.Metric) string {
		entity, _ := labelOf(m, "entity")
		check, _ := labelOf(m, "check")
		namespace, _ := labelOf(m, "namespace")
		handler, _ := labelOf(m, "handler")
		text := entity + "/" + check + " in " + namespace + " by " + handler
		if result, _ := labelOf(m, "result"); result == "no_one" {
			text += ", which reached no one"
		}
		return text
	}, func(name string, _ float64) string { return name })
	e.find(Finding{
		Severity: Warning, Part: Handler,
		Title:  "escalations gave up while their checks still fail",
		Detail: fmt.Sprintf("%s took all steps, and no one had acknowledged the incident at the last look, up to a minute ago%s.", count(n, "escalation"), names),
		Advice: "lapwing escalation list --all-namespaces shows whom each has reached. Look at the incidents, and acknowledge them: lapwing event ack.",
	})
}

func deadLetters(e *exam) {
	grown := e.grownBy("lapwing_handler_dead_total", "handler")
	stray := e.after.by("lapwing_handler_dead_letters_without_handler", "handler")
	for name, kept := range sorted(e.after.by("lapwing_handler_dead_letters", "handler")) {
		if kept == 0 && grown[name] == 0 {
			continue
		}
		f := Finding{
			Severity: Warning, Part: Handler, Subject: name,
			Title:  "there are dead letters",
			Detail: fmt.Sprintf("%s that it never took.", count(kept, "delivery")),
			Advice: fmt.Sprintf("lapwing deadletter list --handler %s --all-namespaces has them with reason and output. When the cause is mended: "+
				"lapwing deadletter redrive --handler %s --all-namespaces --newest --failing-only.", name, name),
		}
		if grown[name] > 0 {
			f.Severity = Critical
			f.Title = "deliveries fail for good"
			f.Detail = fmt.Sprintf("%s in %s became dead letters, of which there are %s now.", count(grown[name], "delivery"), duration(e.seconds), number(kept))
		}
		switch n := stray[name]; {
		case n == 0:
		case n == kept:
			f.Detail += " The handler is not defined any more."
			f.Advice = fmt.Sprintf("They cannot be sent: lapwing deadletter list --handler %s --all-namespaces names their namespaces. "+
				"Define the handler there again, or delete them: lapwing deadletter delete --handler %s --all-namespaces.", name, name)
		default:
			f.Detail += fmt.Sprintf(" %s of them cannot be sent: in their namespaces no handler has this name any more.", number(n))
		}
		e.find(f)
	}
	if n := e.grown("lapwing_handler_dead_dropped_total"); n > 0 {
		e.find(Finding{
			Severity: Critical, Part: Pipeline,
			Title:  "dead letters are lost",
			Detail: fmt.Sprintf("%s in %s: as many as the limit allows are kept.", count(n, "dead letter"), duration(e.seconds)),
			Advice: "Redrive or delete some: lapwing deadletter list --all-namespaces.",
		})
	}
}

// failedAttempts reports attempts that failed, and deliveries that have not ended after one, even if none failed lately.
func failedAttempts(e *exam) {
	failed, retrying := e.grownBy("lapwing_handler_retries_total", "handler"), e.after.by("lapwing_handler_retrying", "handler")
	for name := range sorted(e.after.by("lapwing_handler_retries_total", "handler")) {
		if failed[name] == 0 && retrying[name] == 0 {
			continue
		}
		f := Finding{
			Severity: Warning, Part: Handler, Subject: name,
			Title: "attempts fail and are made again",
			Detail: fmt.Sprintf("%s failed in %s; %s for another one.",
				count(failed[name], "attempt"), duration(e.seconds), deliveriesWait(retrying[name])),
			Advice: fmt.Sprintf("lapwing handler waiting %s --all-namespaces shows them with their errors. They go out by themselves: "+
				"a delivery becomes a dead letter only when all its attempts have failed.", name),
		}
		switch {
		case failed[name] == 0:
			f.Title = "deliveries wait for their next attempt"
			f.Detail = fmt.Sprintf("%s for another attempt, because one has failed.", deliveriesWait(retrying[name]))
		case retrying[name] == 0:
			f.Title = "attempts fail"
			f.Detail = fmt.Sprintf("%s failed in %s.", count(failed[name], "attempt"), duration(e.seconds))
			f.Advice = fmt.Sprintf("lapwing notification list --handler %s --all-namespaces --field-selector 'notification.result != ok' "+
				"shows them with their results.", name)
		}
		e.find(f)
	}
}

// deliveriesWait returns for example "2 deliveries wait".
func deliveriesWait(n float64) string {
	if n == 1 {
		return "1 delivery waits"
	}
	return count(n, "delivery") + " wait"
}

func groups(e *exam) {
	parked := e.after.by("lapwing_handler_parked", "handler")
	for name, n := range sorted(e.after.by("lapwing_handler_groups", "handler")) {
		if n < manyGroups {
			continue
		}
		e.find(Finding{
			Severity: Warning, Part: Handler, Subject: name,
			Title:  "very many groups are open",
			Detail: fmt.Sprintf("%s wait to go out; %s wait in them or for a time of their own.", count(n, "group"), count(parked[name], "delivery")),
			Advice: "A group per event gathers nothing: let the handler's group.by name what events of one outage have in " +
				"common, such as a label of the rack.",
		})
	}
}

// processes reports commands that had to wait for others: handlers fork no more than the limit.
func processes(e *exam) {
	waits := e.grown("lapwing_send_process_waits_total")
	if waits == 0 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Pipeline, Because: e.because(CPU),
		Title:  "commands of handlers wait for one another",
		Detail: fmt.Sprintf("%s waited in %s; %s of at most %s run now.", count(waits, "command"), duration(e.seconds), number(e.after.sum("lapwing_send_processes")), number(e.after.sum("lapwing_send_process_limit"))),
		Advice: "Handlers of a native type (webhook, slack, pagerduty, email and others) need no process. Grouping makes one run of many.",
	})
}

func inhibition(e *exam) {
	if n := e.grownBy("lapwing_inhibit_incidents_total", "answer")["failed"]; n > 0 {
		e.find(Finding{
			Severity: Warning, Part: Pipeline,
			Title:  "dependencies cannot be followed",
			Detail: fmt.Sprintf("%s in %s were sent although their dependencies may fail.", count(n, "incident"), duration(e.seconds)),
			Advice: "The backend's log has the reason; a check or entity with depends_on leads to too many others, or the state cannot be read.",
		})
	}
}

func traces(e *exam) {
	n := e.grownBy("lapwing_trace_records_total", "result")["dropped"]
	if n == 0 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Pipeline, Because: e.because(Disk, CPU),
		Title:  "traces are left out",
		Detail: fmt.Sprintf("%s in %s; lapwing event trace does not know what became of those events. The events themselves are handled.", count(n, "record"), duration(e.seconds)),
		Advice: "Incidents come faster than traces are written. --trace-sample keeps fewer traces of events that are no incidents.",
	})
}
