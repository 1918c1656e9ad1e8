package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// This file has the rules about the metrics half: points on their way from senders to the store and to other servers.

// Bounds of these rules.
const (
	nearLimit   = 0.8  // share of a limit from which on it is near
	atLimit     = 0.95 // share of a limit from which on it is as good as reached
	manyWait    = 0.5  // share of the queues' room from which on senders soon wait
	longLag     = 5.0  // seconds of work that wait
	manyRefused = 0.01 // share of the points that are not taken from which on it matters: each large fleet has a few bad senders
)

// metricsServed reports whether the process takes points.
func (e *exam) metricsServed() bool { return e.after.has("lapwing_metric_points_total") }

// metricsDisk checks whether points are lost at the disk.
func metricsDisk(e *exam) {
	dropped := e.grownBy("lapwing_metric_store_dropped_points_total", "reason")
	if e.after.sum("lapwing_metric_store_disk_full") > 0 {
		e.find(Finding{
			Severity: Critical, Part: Metrics, Subject: "disk", Limits: true, Because: e.because(Disk),
			Title:  "the disk is almost full: no points are stored",
			Detail: fmt.Sprintf("%s dropped in %s.", were(dropped["disk_full"], "point"), duration(e.seconds)),
			Advice: "Make room on the disk of the state directory, or keep series for a shorter time (--storage-schemas-file). " +
				"Points are stored again, without a restart, as soon as more than --metric-min-free-disk is free.",
		})
	}
	var failed []string
	for _, f := range []struct {
		n    float64
		noun string
	}{
		{dropped["failed"], "point"},
		{e.grown("lapwing_metric_store_sync_failures_total"), "sync"},
		{e.grown("lapwing_metric_store_correction_failures_total"), "correction"},
	} {
		if f.n > 0 {
			failed = append(failed, count(f.n, f.noun))
		}
	}
	if len(failed) > 0 {
		e.find(Finding{
			Severity: Critical, Part: Metrics, Subject: "disk", Limits: true, Because: e.because(Disk),
			Title:  "points cannot be written to the disk",
			Detail: fmt.Sprintf("Failed in %s: %s. Points that were not written are lost.", duration(e.seconds), strings.Join(failed, ", ")),
			Advice: "The log has the error. Check whether the disk is full, read-only or broken.",
		})
	}
	if n := e.after.sum("lapwing_metric_store_set_aside_total"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: Metrics, Subject: "disk",
			Title:  "stored points could not be read and were set aside",
			Detail: fmt.Sprintf("%s since the start of the process.", count(n, "part")),
			Advice: "The log names the files. Queries lack the points in them. Check the disk; this finding ends with the next start.",
		})
	}
}

// corrections checks whether coarse values are computed again after late points.
func corrections(e *exam) {
	waiting := count(e.after.sum("lapwing_metric_store_waiting_corrections"), "value")
	if n := e.grown("lapwing_metric_store_journal_failures_total"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: Metrics, Subject: "corrections", Because: e.because(Disk),
			Title: "the journal of corrections cannot be written",
			Detail: fmt.Sprintf("%s failed in %s. Late points are stored, and %s of coarser archives wait for being computed "+
				"again. If the process is killed now, some of them stay wrong.", count(n, "write"), duration(e.seconds), waiting),
			Advice: "The log has the error. Check whether the disk is full, read-only or broken, and stop the process in order.",
		})
	}
	// All since the start, because these values stay wrong; the start itself may lose some.
	if n := e.after.sum("lapwing_metric_store_lost_corrections_total"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: Metrics, Subject: "corrections",
			Title: "values of coarser archives are wrong: they lack late points",
			Detail: fmt.Sprintf("%s since the start of the process could not be noted for being computed again, %s of them "+
				"in %s; %s wait.", count(n, "value"), number(e.grown("lapwing_metric_store_lost_corrections_total")),
				duration(e.seconds), waiting),
			Advice: "Send old points more slowly, so that fewer values wait at a time. A value becomes right when a late " +
				"point of its time comes again. This finding ends with the next start.",
		})
	}
}

// pointsWait checks whether the store takes points as fast as they come.
func pointsWait(e *exam) {
	waiting, limit := e.after.sum("lapwing_metric_store_queued_points"), e.after.sum("lapwing_metric_store_queue_limit_points")
	stored := e.rate("lapwing_metric_store_points_total")
	unqueued := e.grownBy("lapwing_metric_store_dropped_points_total", "reason")["queue_full"]
	lost := unqueued + e.grown("lapwing_metric_carbon_dropped_points_total") + e.grown("lapwing_metric_event_points_dropped_total")
	lag := 0.0
	if stored > 0 {
		lag = waiting / stored
	}
	stuck := e.seconds > 0 && stored == 0 && waiting > 0 && e.before.sum("lapwing_metric_store_queued_points") > 0
	if lost == 0 && !stuck && lag < longLag && (limit == 0 || waiting < manyWait*limit) {
		return
	}
	f := Finding{
		Severity: Warning, Part: Metrics, Subject: "store", Limits: true, Because: e.because(CPU, Memory, Disk),
		Title: "points come faster than they are stored",
		Detail: fmt.Sprintf("%s of at most %s wait, the work of %s; %s points/s come and %s are stored. Senders over TCP wait.",
			count(waiting, "point"), number(limit), duration(lag), number(e.rate("lapwing_metric_points_total")), number(stored)),
		Advice: "More cores or a faster disk, fewer points (longer intervals of the senders, --carbon-blacklist-file), or more members.",
	}
	if lost > 0 {
		f.Detail += fmt.Sprintf(" %s lost in %s: points by UDP and of events are dropped when there is no room.",
			were(lost, "point"), duration(e.seconds))
	}
	if stuck {
		f.Severity, f.Because = Critical, e.because(Disk)
		f.Title = "the store of metrics takes no points"
		f.Detail = fmt.Sprintf("%s of at most %s wait, and none was stored in %s.", count(waiting, "point"), number(limit),
			duration(e.seconds))
		f.Advice = "The log says what it waits for; most often the disk is stuck."
	}
	e.find(f)
}

// seriesBounds checks the bounds of series and memory, which refuse new series.
func seriesBounds(e *exam) {
	series, most := e.after.sum("lapwing_metric_store_series"), e.after.sum("lapwing_metric_store_series_limit")
	used, limit := e.after.sum("lapwing_metric_store_memory_bytes"), e.after.sum("lapwing_metric_store_memory_limit_bytes")
	share := func(n, of float64) float64 {
		if of == 0 {
			return 0
		}
		return n / of
	}
	bySeries, byMemory := share(series, most), share(used, limit)
	refused := e.grownBy("lapwing_metric_refused_points_total", "reason")["too_many_series"] +
		e.grownBy("lapwing_metric_store_dropped_points_total", "reason")["series_limit"]
	if refused == 0 && bySeries < nearLimit && byMemory < nearLimit {
		return
	}
	f := Finding{
		Severity: Warning, Part: Metrics, Subject: "series", Title: "a limit of series is near",
		Detail: fmt.Sprintf("%s series of at most %s, with %s of memory", number(series), number(most), bytes(used)),
	}
	if limit > 0 {
		f.Detail += fmt.Sprintf(" of at most %s", bytes(limit))
	}
	f.Detail += fmt.Sprintf("; %s new in %s.", number(e.grown("lapwing_metric_store_created_series_total")), duration(e.seconds))
	switch {
	case byMemory >= nearLimit && byMemory >= bySeries:
		f.Advice = "Raise --metric-memory-limit if the machine has more memory, or add a member."
	case bySeries >= nearLimit:
		f.Advice = "Raise --metric-max-series if the machine has memory for more, or add a member."
	default:
		f.Advice = "Neither bound is near, so it is --metric-new-series-per-minute; or one of them was reached a moment ago."
	}
	f.Advice += " Else find the senders of many names (lapwing metric find '*') and refuse those with --carbon-blacklist-file. " +
		"Series without points leave the memory after an hour."
	if refused > 0 {
		f.Severity, f.Limits = Critical, true
		f.Title = "points of new series are refused: a limit is reached"
		f.Detail += fmt.Sprintf(" %s refused; series with recent points are stored.", were(refused, "point"))
	}
	e.find(f)
}

// pointsRefused checks for senders whose points are not taken.
func pointsRefused(e *exam) {
	points := e.grown("lapwing_metric_points_total")
	var why []string
	sum := 0.0
	add := func(what string, n float64) {
		if n > 0 {
			sum += n
			why = append(why, number(n)+" "+what)
		}
	}
	for reason, n := range sorted(e.grownBy("lapwing_metric_carbon_rejected_points_total", "reason")) {
		if reason != "refused" { // these are counted below by their reason
			add(reason, n)
		}
	}
	add("bad_name", e.grownBy("lapwing_metric_refused_points_total", "reason")["bad_name"])
	dropped := e.grownBy("lapwing_metric_store_dropped_points_total", "reason")
	for _, reason := range []string{"future", "late", "nan", "retention"} {
		add(reason, dropped[reason])
	}
	if sum == 0 || sum < manyRefused*(points+sum) {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Metrics, Subject: "senders",
		Title: "points are not taken",
		Detail: fmt.Sprintf("%s in %s, by reason: %s. %s could be read.", count(sum, "point"), duration(e.seconds),
			strings.Join(why, ", "), count(points, "point")),
		Advice: "The log has an example of each reason a few times a minute. late: more than --metric-late-window behind the newest " +
			"point; future: the sender's clock is ahead; retention: older than its series are kept; all others: what was sent is not right.",
	})
}

// senderConnections checks the bound of carbon's connections.
func senderConnections(e *exam) {
	for protocol, n := range sorted(e.grownBy("lapwing_metric_carbon_connections_full_total", "protocol")) {
		e.find(Finding{
			Severity: Warning, Part: Metrics, Subject: "senders", Limits: true,
			Title: "senders wait for a connection",
			Detail: fmt.Sprintf("The listener %s had as many connections as allowed %s in %s; %s are open.", protocol, count(n, "time"),
				duration(e.seconds), number(e.after.by("lapwing_metric_carbon_connections", "protocol")[protocol])),
			Advice: "Raise --carbon-max-connections and the limit of open files, or have a shorter --carbon-idle-timeout.",
		})
	}
}

// memberPoints checks the points on their way to other members.
func memberPoints(e *exam) {
	if !e.after.has("lapwing_metric_member_points_waiting") {
		return
	}
	waiting, was := e.after.sum("lapwing_metric_member_points_waiting"), e.before.sum("lapwing_metric_member_points_waiting")
	onDisk, limit := e.after.sum("lapwing_metric_member_spill_bytes"), e.after.sum("lapwing_metric_member_spill_limit_bytes")
	dropped, sent := e.grown("lapwing_metric_member_points_dropped_total"), e.rate("lapwing_metric_member_points_sent_total")
	spilled := e.grown("lapwing_metric_member_points_spilled_total")
	lag := 0.0
	if sent > 0 {
		lag = waiting / sent
	}
	f := Finding{
		Severity: Warning, Part: Metrics, Subject: "members",
		Detail: fmt.Sprintf("%s in memory and %s on disk wait for other members, at most %s on disk for each; %s points/s are sent, and "+
			"%s failed.", count(waiting, "point"), bytes(onDisk), bytes(limit), number(sent),
			count(e.grown("lapwing_metric_member_send_failures_total"), "attempt")),
		Advice: "Start the member that is away, or see what slows it down: lapwing doctor at its own address. --metric-member-spill-bytes " +
			"gives more room on disk.",
	}
	switch {
	case dropped > 0:
		f.Severity, f.Limits = Critical, true
		f.Title = "points for another member are lost"
		f.Detail = fmt.Sprintf("%s dropped in %s: there was no room in memory and on disk. ", were(dropped, "point"),
			duration(e.seconds)) + f.Detail
	case limit > 0 && onDisk >= atLimit*limit:
		f.Severity, f.Limits = Critical, true
		f.Title = "the disk for the points of a member that is away is as good as full"
		f.Detail += " When it is full, senders wait."
	case limit > 0 && onDisk >= nearLimit*limit:
		f.Title = "the disk for the points of a member that is away fills up"
		f.Detail += " When it is full, senders wait."
	case len(e.away()) == 0 && spilled > 0:
		f.Title = "another member takes points too slowly"
		f.Detail += fmt.Sprintf(" %s went to disk in %s, although no member is away.", count(spilled, "point"), duration(e.seconds))
	case lag >= longLag && waiting > was:
		f.Title = "the points that wait for other members grow"
		f.Detail += fmt.Sprintf(" It was %s; what waits is the work of %s.", number(was), duration(lag))
	default:
		return
	}
	e.find(f)
}

// relayPoints checks each carbon server that gets the points too.
func relayPoints(e *exam) {
	connected := e.after.by("lapwing_metric_relay_connected", "destination")
	dropped := e.grownBy("lapwing_metric_relay_dropped_points_total", "destination")
	spills := e.after.by("lapwing_metric_relay_spill_bytes", "destination")
	limits := e.after.by("lapwing_metric_relay_spill_limit_bytes", "destination")
	queues := e.after.by("lapwing_metric_relay_queue_points", "destination")
	sent := e.grownBy("lapwing_metric_relay_sent_points_total", "destination")
	for _, name := range slices.Sorted(maps.Keys(connected)) {
		onDisk, limit := spills[name], limits[name]
		f := Finding{
			Severity: Warning, Part: Metrics, Subject: "relay to " + name,
			Detail: fmt.Sprintf("%s in memory and %s on disk wait for it, of at most %s on disk; %s points/s are sent.",
				count(queues[name], "point"), bytes(onDisk), bytes(limit), number(e.perSecond(sent[name]))),
			Advice: "Start the server, or see what slows it down. --relay-spill-bytes gives more room on disk. The other destinations " +
				"do not wait for it.",
		}
		away := connected[name] == 0 && (queues[name] > 0 || onDisk > 0)
		switch {
		case dropped[name] > 0:
			f.Severity, f.Limits = Critical, true
			f.Title = "points are lost"
			f.Detail = fmt.Sprintf("%s dropped in %s%s. ", were(dropped[name], "point"), duration(e.seconds), e.whyDropped(name)) + f.Detail
		case limit > 0 && onDisk >= atLimit*limit:
			f.Severity, f.Limits = Critical, true
			f.Title = "the disk for its points is as good as full"
		case limit > 0 && onDisk >= nearLimit*limit:
			f.Title = "the disk for its points fills up"
		case away:
			f.Title = "there is no connection"
		default:
			continue
		}
		e.find(f)
	}
}

// whyDropped lists the reasons for which a destination lost points.
func (e *exam) whyDropped(destination string) string {
	const metric = "lapwing_metric_relay_dropped_points_total"
	of := func(s *Scrape) map[string]float64 {
		only := &Scrape{Families: map[string]*dto.MetricFamily{metric: {}}}
		for _, m := range s.Families[metric].GetMetric() {
			if matches(m, []string{"destination", destination}) {
				only.Families[metric].Metric = append(only.Families[metric].Metric, m)
			}
		}
		return only.by(metric, "reason")
	}
	was := of(e.before)
	var why []string
	for reason, n := range sorted(of(e.after)) {
		if n > was[reason] {
			why = append(why, reason)
		}
	}
	return " (" + strings.Join(why, ", ") + ")"
}

// remotePoints checks the stores that get the points by remote write.
func remotePoints(e *exam) {
	dropped := e.grownBy("lapwing_metric_remote_dropped_samples_total", "remote")
	spilled := e.grownBy("lapwing_metric_remote_spilled_samples_total", "remote")
	retries := e.grownBy("lapwing_metric_remote_retries_total", "remote")
	sent := e.grownBy("lapwing_metric_remote_sent_samples_total", "remote")
	for _, name := range slices.Sorted(maps.Keys(e.after.by("lapwing_metric_remote_sent_samples_total", "remote"))) {
		f := Finding{
			Severity: Warning, Part: Metrics, Subject: name,
			Detail: fmt.Sprintf("%s/s are sent; %s tried again in %s.", count(e.perSecond(sent[name]), "sample"), were(retries[name], "request"),
				duration(e.seconds)),
			Advice: "The log has the error of the receiver. It is of --metric-remote-write-file, or remote-0 for the first " +
				"--metric-remote-write-url.",
		}
		switch {
		case dropped[name] > 0:
			f.Severity, f.Limits = Critical, true
			f.Title = "samples for remote write are lost"
			f.Detail = fmt.Sprintf("%s dropped in %s. ", were(dropped[name], "sample"), duration(e.seconds)) + f.Detail
		case spilled[name] > 0:
			f.Title = "samples for remote write go to the disk"
			f.Detail = fmt.Sprintf("%s went to disk in %s: the receiver is away or slow. ", count(spilled[name], "sample"),
				duration(e.seconds)) + f.Detail
		default:
			continue
		}
		e.find(f)
	}
}

// metricQueries checks for queries and evaluations that do not get their answer.
func metricQueries(e *exam) {
	refused := e.grown("lapwing_metric_graphite_queries_refused_total") + e.grown("lapwing_metric_promapi_busy_total")
	late := e.grown("lapwing_metric_graphite_queries_timed_out_total")
	if refused > 0 || late > 0 {
		e.find(Finding{
			Severity: Warning, Part: Metrics, Subject: "queries", Because: e.because(CPU),
			Title: "queries of metrics get no answer",
			Detail: fmt.Sprintf("%s refused because too many ran, and %s given up because they took too long, in %s.",
				were(refused, "query"), number(late), duration(e.seconds)),
			Advice: "Find the dashboards with many or large targets: shorter ranges, fewer series, a longer refresh; or put " +
				"their sums into --aggregation-rules-file.",
		})
	}
	failed := e.grownBy("lapwing_metric_check_evaluations_total", "result")["failed"]
	rules := e.grownBy("lapwing_metric_rulefile_evaluations_total", "result")
	for result, n := range rules {
		if result != "ok" {
			failed += n
		}
	}
	if lost := e.grown("lapwing_metric_rulefile_lost_samples_total"); failed > 0 || lost > 0 {
		e.find(Finding{
			Severity: Warning, Part: Metrics, Subject: "checks",
			Title: "checks on metrics cannot be evaluated",
			Detail: fmt.Sprintf("%s of metric checks and rules failed in %s; %s of rules could not be stored.", count(failed, "evaluation"),
				duration(e.seconds), count(lost, "result")),
			Advice: "The log names the check or rule and the reason. While it fails, results of a metric check are unknown, and alerts " +
				"of a rule do not change.",
		})
	}
}

// were is a count with the verb that fits.
func were(n float64, noun string) string {
	if n == 1 {
		return count(n, noun) + " was"
	}
	return count(n, noun) + " were"
}
