package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rules run in this order, which is that of causes: a rule may read the findings of those before it.
var rules = []func(*exam){
	// The machine and the process.
	restart, diskSpace, lease, diskErrors, cpu, garbage, diskSpeed, memory, files, connections, certificates,
	// The members of a cluster.
	digestsDiffer, definitionsDiffer, membersAway, leaderless, copiesBehind, leadersOnOne, memberDisks, memberClocks,
	membersBehind, versionsDiffer,
	// The event's path.
	brokerServes, logIsHeldUp, logTakes, logCommits, foldLag, writeBack, database, handlers, deadLetters, escalations, failedAttempts, groups, processes,
	pipelineErrors, filterErrors, setAside, workers, filterSpeed, inhibition, traces, deadlines, schedules, groupsWithoutAgents, turnsExpired,
	// The path of points.
	metricsDisk, corrections, pointsWait, seriesBounds, pointsRefused, senderConnections,
	memberPoints, relayPoints, remotePoints, metricQueries,
	// The copy of events in PostgreSQL.
	postgresJournal, postgresBehind,
	// The parts around the path.
	agentsRead, agentsStopped, agentsDrained, agentsRefused, agentsLost, agentsPaced, agentsRepeat, agentsDuplicate, agentsPassword, quotas,
	rejected, lateChecks, checksWithoutAgent, aggregates, clock, config, apiErrors, apiSpeed, streams,
}

func restart(e *exam) {
	if !e.restarted {
		return
	}
	e.find(Finding{
		Severity: Critical, Part: Process,
		Title:  "the backend was restarted between the two scrapes",
		Detail: fmt.Sprintf("Its process has been up for %s.", duration(e.summary().Uptime)),
		Advice: "Unless an operator restarted it, its log says why it ended; the system's log says so if it was killed for want of memory.",
	})
}

func diskSpace(e *exam) {
	if !e.after.has("lapwing_disk_free_bytes") {
		return
	}
	free, reserve := e.after.sum("lapwing_disk_free_bytes"), e.after.sum("lapwing_disk_reserve_bytes")
	f := Finding{
		Severity: Warning, Part: Disk,
		Title:  "the disk is nearly full",
		Detail: fmt.Sprintf("%s are free; below %s no events are taken. The event log has %s of it, the state %s.", bytes(free), bytes(reserve), bytes(e.after.sum("lapwing_eventlog_stored_bytes")), bytes(e.after.sum("lapwing_database_bytes"))),
		Advice: "Make space on the disk of the state directory, or keep less of the log (--event-log-keep-bytes).",
	}
	switch {
	case free < reserve:
		f.Severity, f.Limits = Critical, true
		f.Title = "the disk is full: no events are taken"
		f.Advice += " Events are taken again, without a restart, as soon as there is space; agents keep theirs until then."
	case free >= 2*reserve:
		return
	}
	e.find(f)
}

func diskErrors(e *exam) {
	var failed []string
	// a full disk has a finding already, and so has a member without a majority
	if n := e.grown("lapwing_eventlog_commit_failures_total"); n > 0 && !e.found(Disk) && !e.found(Cluster) {
		failed = append(failed, count(n, "commit")+" of the event log")
	}
	if n := e.grown("lapwing_state_write_failures_total"); n > 0 {
		failed = append(failed, count(n, "commit")+" of the state")
	}
	if n := e.grown("lapwing_handler_store_errors_total"); n > 0 {
		failed = append(failed, count(n, "write")+" of deliveries")
	}
	if len(failed) > 0 {
		e.find(Finding{
			Severity: Critical, Part: Disk, Limits: true, Because: e.because(Disk),
			Title:  "writes to the disk fail",
			Detail: fmt.Sprintf("Failed and tried again in %s: %s.", duration(e.seconds), strings.Join(failed, ", ")),
			Advice: "The backend's log has the error. Check whether the disk is full, read-only or broken.",
		})
	}
}

func brokerServes(e *exam) {
	if !e.after.has("lapwing_broker_up") || e.after.sum("lapwing_broker_up") > 0 {
		return
	}
	e.find(Finding{
		Severity: Critical, Part: Log, Limits: true, Because: e.because(Disk),
		Title:  "the broker under the event log does not serve",
		Detail: fmt.Sprintf("Its store was opened again %s since the start.", count(e.after.sum("lapwing_broker_repairs_total"), "time")),
		Advice: "The backend's log says what its broker cannot do; most often its disk is full or its files cannot be written.",
	})
}

// Limits for a good disk, in seconds.
const (
	slowCommit     = 0.050 // mean of a commit of the event log
	slowCommitTail = 0.250 // 99th percentile of a commit
	slowSync       = 0.020 // mean of a sync
)

func diskSpeed(e *exam) {
	if e.found(CPU) {
		return // everything that waits for CPU looks slow
	}
	commits, syncs := e.histogram("lapwing_eventlog_commit_seconds"), e.histogram("lapwing_database_wal_sync_seconds")
	slow := commits.count >= 5 && (commits.mean() >= slowCommit || commits.quantile(0.99) >= slowCommitTail)
	// Large commits may take long; then only a slow sync shows a slow disk.
	syncing := syncs.count >= 5 && syncs.mean() >= slowSync || e.commitBytes() < 256<<10
	if slow && !syncing || !slow && (syncs.count < 5 || syncs.mean() < slowCommit) {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Disk, Limits: true,
		Title: "the disk is slow to sync",
		Detail: fmt.Sprintf("A commit of the event log took %s on average, one in a hundred %s or more (%s of them in %s, of %s each); a sync of the state's database took %s. The process writes %s a second.",
			duration(commits.mean()), duration(below(commits, 0.99)), number(commits.count), duration(e.seconds), bytes(e.commitBytes()), duration(syncs.mean()), bytes(e.rate("lapwing_process_disk_written_bytes_total"))),
		Advice: "Give the state directory a disk of its own, local and with a fast sync (an SSD with power-loss " +
			"protection syncs within 1 ms). Check what else writes to it. A longer --event-log-flush-interval makes commits fewer.",
	})
}

// commitBytes is the mean size of a commit of the event log.
func (e *exam) commitBytes() float64 {
	n := e.histogram("lapwing_eventlog_commit_seconds").count
	if n == 0 {
		return 0
	}
	return e.grown("lapwing_eventlog_written_bytes_total") / n
}

// below is the bound before the quantile's: what the quantile surely exceeds.
func below(h histogram, q float64) float64 {
	at, least := h.quantile(q), 0.0
	for bound := range h.buckets {
		if bound < at {
			least = max(least, bound)
		}
	}
	return least
}

// logTakes checks for appends that had to wait: more comes in than the log takes.
func logTakes(e *exam) {
	waiting, waited := e.after.sum("lapwing_eventlog_blocked_appends"), e.grown("lapwing_eventlog_blocked_total")
	if waiting == 0 && waited == 0 {
		return
	}
	age, commits := e.after.most("lapwing_eventlog_pending_age_seconds"), e.histogram("lapwing_eventlog_commit_seconds")
	f := Finding{
		Severity: Warning, Part: Log, Limits: true, Because: e.because(Cluster, Disk, CPU, Memory),
		Title: "the event log takes less than is sent",
		Detail: fmt.Sprintf("%s had to wait in %s, for %s in all; %s now. The oldest record has not been durable for %s; %s of at most %s wait in the fullest partition. %s commits/s of %s took %s each. Agents are held back and keep what they cannot send.",
			count(waited, "append"), duration(e.seconds), duration(e.grown("lapwing_eventlog_blocked_seconds_total")), waits(waiting), duration(age),
			bytes(e.after.most("lapwing_eventlog_pending_bytes")), bytes(e.after.sum("lapwing_eventlog_pending_limit_bytes")),
			number(e.perSecond(commits.count)), bytes(e.commitBytes()), duration(commits.mean())),
		Advice: "A longer --event-log-flush-interval makes commits larger and cheaper; else fewer or longer check intervals, or a faster machine.",
	}
	if age >= 5 {
		f.Severity = Critical
		f.Title = "the event log takes nothing, or hardly anything"
	}
	e.find(f)
}

// longPauses is the share of pauses of the log's partitions from which on they matter.
const longPauses = 0.05

// logIsHeldUp checks the pauses that keep the memory below its limit.
func logIsHeldUp(e *exam) {
	held := e.grown("lapwing_eventlog_held_seconds_total")
	if held == 0 || held < longPauses*e.seconds*e.partitions {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Memory, Limits: true,
		Title: "the event log pauses to keep memory below its limit",
		Detail: fmt.Sprintf("The pauses of %s add up to %s in %s. %s/s were written.",
			count(e.partitions, "partition"), duration(held), duration(e.seconds),
			bytes(e.perSecond(e.grown("lapwing_eventlog_written_bytes_total")))),
		Advice: "If events must be that large, add memory or raise --memory-limit. Otherwise find the agents that send " +
			"large outputs; max_output_size of a check cuts them.",
	})
}

func waits(n float64) string {
	if n == 1 {
		return "1 waits"
	}
	return number(n) + " wait"
}

// logCommits checks for slow commits although nothing waits yet.
func logCommits(e *exam) {
	age := e.after.most("lapwing_eventlog_pending_age_seconds")
	if age < 2 || e.found(Log) {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Log, Limits: true, Because: e.because(Disk, CPU),
		Title:  "a commit of the event log does not end",
		Detail: fmt.Sprintf("The oldest record has not been durable for %s; %s of at most %s wait in the fullest partition.", duration(age), bytes(e.after.most("lapwing_eventlog_pending_bytes")), bytes(e.after.sum("lapwing_eventlog_pending_limit_bytes"))),
		Advice: "Look at the disk of the state directory: it is slow, full or stuck. The backend's log tells of commits that failed.",
	})
}

func foldLag(e *exam) {
	age, messages := e.after.most("lapwing_state_lag_seconds"), e.after.sum("lapwing_state_lag_messages")
	if age < 1 {
		return
	}
	was := e.before.most("lapwing_state_lag_seconds")
	course := "It stays so."
	switch {
	case e.seconds == 0:
		course = ""
	case age > was+e.seconds/4:
		course = "It falls further behind."
	case age < was-e.seconds/4:
		course = fmt.Sprintf("It catches up and needs about %s.", duration(age/(was-age)*e.seconds))
	}
	fold, route := e.histogram("lapwing_state_fold_seconds"), e.histogram("lapwing_pipeline_handle_seconds")
	f := Finding{
		Severity: Warning, Part: Fold, Limits: true, Because: e.because(Cluster, CPU),
		Title: "the state lags behind the event log",
		Detail: fmt.Sprintf("The oldest event that is not folded came %s ago, %s behind; what the API shows and what handlers get is as late as that. Events are safe in the log. %s %s events/s are folded; folding keeps its goroutines busy %s of the time.",
			duration(age), count(messages, "message"), course, number(e.rate("lapwing_events_folded_total")), percent(e.foldShare())),
		Advice: "More CPU helps, or fewer events.",
	}
	switch {
	case e.seconds == 0:
	case e.foldShare()*e.partitions < 0.5:
		f.Detail += " So it is not folding that takes the time, but reading the log."
		f.Advice = "Look at the disk; the backend's log says if reading the log is interrupted."
	case route.sum/fold.sum > 0.5:
		f.Detail += fmt.Sprintf(" %s of that goes into events that handlers take.", percent(min(1, route.sum/fold.sum)))
		f.Advice = "Most of it is decoding and encoding events for handlers: let handlers take fewer, with filters such as is_incident, or name fewer handlers in checks."
	}
	if age >= 30 {
		f.Severity = Critical
	}
	e.find(f)
}

// foldShare is the busy share of the goroutines that fold.
func (e *exam) foldShare() float64 {
	return e.perSecond(e.histogram("lapwing_state_fold_seconds").sum) / e.partitions
}

func writeBack(e *exam) {
	age, delay := e.after.sum("lapwing_state_dirty_age_seconds"), e.after.sum("lapwing_state_write_delay_seconds")
	bodies, limit := e.after.sum("lapwing_state_dirty_bytes"), e.after.sum("lapwing_state_dirty_limit_bytes")
	f := Finding{
		Severity: Warning, Part: WriteBack, Because: e.because(Disk, CPU),
		Title:  "the state is written back late",
		Detail: fmt.Sprintf("The oldest of %s has waited for %s, where %s are meant; %s of events wait. %s changes/s are written.", count(e.after.sum("lapwing_state_dirty"), "change"), duration(age), duration(delay), bytes(bodies), number(e.rate("lapwing_state_written_total"))),
		Advice: "Nothing is lost, but a start after a crash takes longer. The disk of the state directory is too slow or too busy for so many different checks.",
	}
	switch {
	case age > 3*delay+5:
	case limit > 0 && bodies >= 0.9*limit:
		f.Title = "too many changes wait to be written back"
		f.Detail = fmt.Sprintf("%s of events wait, of at most %s; so they are written before the %s are over in which others of the same check may come.", bytes(bodies), bytes(limit), duration(delay))
		f.Advice = "A shorter --state-write-delay costs nothing now and makes this regular; smaller outputs of checks (max_output_size) help, too."
	default:
		return
	}
	e.find(f)
}

func database(e *exam) {
	const stop = 24 // as the backend sets it
	runs := e.after.sum("lapwing_database_level0_sublevels")
	if runs < stop/2 {
		return
	}
	f := Finding{
		Severity: Warning, Part: WriteBack, Limits: true, Because: e.because(Disk, CPU),
		Title:  "the state's database cannot keep its files in order",
		Detail: fmt.Sprintf("%s runs of tables overlap in its first level, at %d writes stop; %s are to be rewritten.", number(runs), stop, bytes(e.after.sum("lapwing_database_compaction_debt_bytes"))),
		Advice: "The disk or the CPU is too slow for what is written. A longer --state-write-delay makes it less.",
	}
	if runs >= stop-4 {
		f.Severity = Critical
	}
	e.find(f)
}

// handlers checks each handler by itself: a slow one delays no other.
func handlers(e *exam) {
	for _, name := range e.handlerNames() {
		e.handler(name)
	}
}

// handlerNames are the handlers that have or had a queue.
func (e *exam) handlerNames() []string {
	names := e.after.by("lapwing_handler_runs_total", "handler")
	maps.Copy(names, e.after.by("lapwing_handler_queue_depth", "handler"))
	return slices.Sorted(maps.Keys(names))
}

// handlerFigures are the figures of one handler.
type handlerFigures struct {
	running, workers, waiting, limit, spilled float64
	own                                       bool // workers is the handler's own concurrency
	parked, retrying                          float64
	age, runAge                               float64 // seconds
	in, out                                   float64 // between the scrapes
	runs                                      histogram
	usual                                     float64            // mean seconds of a run since the start
	failed                                    map[string]float64 // by result
	shed                                      []string           // since the start, as text
}

func (e *exam) handlerFigures(name string) handlerFigures {
	get := func(metric string) float64 { return e.after.by(metric, "handler")[name] }
	h := handlerFigures{
		running: get("lapwing_handler_running"), workers: max(1, e.after.sum("lapwing_handler_workers")),
		limit: e.after.sum("lapwing_handler_queue_limit"), spilled: get("lapwing_handler_queue_spilled"),
		age: get("lapwing_handler_queue_age_seconds"), runAge: get("lapwing_handler_run_age_seconds"),
		in:     e.grownBy("lapwing_handler_dispatched_total", "handler")[name],
		runs:   e.histogram("lapwing_handler_duration_seconds", "handler", name),
		usual:  e.after.histogram("lapwing_handler_duration_seconds", "handler", name).mean(),
		failed: map[string]float64{},
	}
	if n := get("lapwing_handler_concurrency"); n > 0 {
		h.workers, h.own = n, true
	}
	h.waiting = max(0, get("lapwing_handler_queue_depth")-h.running)
	h.parked, h.retrying = get("lapwing_handler_parked"), get("lapwing_handler_retrying")
	for _, m := range e.after.Families["lapwing_handler_shed_total"].GetMetric() {
		if class, _ := labelOf(m, "class"); matches(m, []string{"handler", name}) && value(m) > 0 {
			h.shed = append(h.shed, fmt.Sprintf("%s %s", number(value(m)), class))
		}
	}
	for _, m := range e.after.Families["lapwing_handler_runs_total"].GetMetric() {
		if !matches(m, []string{"handler", name}) {
			continue
		}
		result, _ := labelOf(m, "result")
		n := value(m)
		for _, was := range e.before.Families["lapwing_handler_runs_total"].GetMetric() {
			if matches(was, []string{"handler", name, "result", result}) {
				n -= value(was)
			}
		}
		h.out += n
		if result != "ok" && n > 0 {
			h.failed[result] = n
		}
	}
	return h
}

// queue describes the waiting deliveries.
func (h handlerFigures) queue() string {
	text := fmt.Sprintf("%s in memory", waits(h.waiting))
	if h.spilled > 0 {
		text += fmt.Sprintf(" and %s more on disk", number(h.spilled))
	}
	if h.parked > 0 {
		text += fmt.Sprintf("; %s parked, %s after a failed attempt", number(h.parked), number(h.retrying))
	}
	if h.age > 0 {
		text += fmt.Sprintf("; the oldest event came %s ago", duration(h.age))
	}
	return text
}

const (
	longRun   = 60.0  // seconds; from here a run has a finding
	tooLate   = 300.0 // seconds; an alert this late is useless
	lateEvent = 60.0
)

func (e *exam) handler(name string) {
	h := e.handlerFigures(name)
	f := Finding{Severity: Warning, Part: Handler, Subject: name, Limits: true}
	backlog := h.waiting + h.spilled
	// A busy backend answers a scrape some time after it measured, so a run may look shorter than the time between two
	// of them.
	looked := 0.8 * e.seconds
	switch {
	case e.seconds > 0 && h.running >= h.workers && h.out == 0 && h.runAge >= max(looked, 2*h.usual) && backlog > 0:
		f.Title = "it hangs"
		f.Detail = fmt.Sprintf("All %s that may run at a time do, the longest for %s, and none has ended in %s. Waiting: "+
			"%s.", number(h.workers), duration(h.runAge), duration(e.seconds), h.queue())
		f.Advice = "Check what its command or server waits for. Give the handler a timeout, so that one that hangs ends. " +
			"No other handler waits for this one, and no state change is lost."
		if h.spilled > 0 || h.age >= lateEvent {
			f.Severity = Critical
		}
	case h.spilled > 0 || h.limit > 0 && h.waiting >= h.limit/2:
		f.Title = "it is too slow for what it gets"
		f.Detail = fmt.Sprintf("It got %s/s and ended %s/s; %s.", number(e.perSecond(h.in)), number(e.perSecond(h.out)), h.queue())
		if mean := h.runs.mean(); mean > 0 {
			f.Detail += fmt.Sprintf(" A run takes %s, so %s at a time can end %s/s.", duration(mean), number(h.workers), number(h.workers/mean))
		}
		if h.out > h.in {
			f.Detail += fmt.Sprintf(" It catches up and needs about %s.", duration(backlog/e.perSecond(h.out-h.in)))
		}
		raise := "--handler-workers"
		if h.own {
			raise = "the concurrency of its definition"
		}
		f.Advice = "Make it faster, let it take fewer events (filters, fewer checks that name it), or raise " + raise +
			". No other handler waits for this one, and no state change is lost."
		if h.age >= tooLate {
			f.Severity = Critical
		}
	case h.runAge >= longRun:
		f.Limits = false
		f.Title = "a run does not end"
		f.Detail = fmt.Sprintf("The longest has lasted for %s; %s of %s that may run at a time do; %s.", duration(h.runAge), number(h.running), number(h.workers), h.queue())
		f.Advice = "Check what its command or server waits for, and give the handler a timeout that fits."
	}
	if f.Title != "" {
		e.find(f)
	}
	if len(h.shed) > 0 {
		e.find(Finding{
			Severity: Warning, Part: Handler, Subject: name,
			Title:  "deliveries were shed",
			Detail: fmt.Sprintf("Too many were on disk. Shed since the start, by class: %s.", strings.Join(h.shed, ", ")),
			Advice: "Make it faster, let it take fewer events, or raise --handler-queue-disk. State changes are never shed; docs/overload.md has the order.",
		})
	}
	failed := 0.0
	var how []string
	for _, result := range slices.Sorted(maps.Keys(h.failed)) {
		failed += h.failed[result]
		how = append(how, fmt.Sprintf("%s %s", number(h.failed[result]), result))
	}
	if failed > 0 && failed >= h.out/2 {
		e.find(Finding{
			Severity: Warning, Part: Handler, Subject: name,
			Title:  "its runs fail",
			Detail: fmt.Sprintf("Of %s that ended in %s these did not succeed: %s.", count(h.out, "run"), duration(e.seconds), strings.Join(how, ", ")),
			Advice: "The backend's log has the output of each (\"handler failed\"). failed: it ran and says so; timeout: it took too long; error: it could not be run or reached.",
		})
	}
}

func pipelineErrors(e *exam) {
	for step, n := range sorted(e.grownBy("lapwing_pipeline_errors_total", "step")) {
		advice := "The backend's log names the handler and the reason (\"events are not handled\")."
		if step == "decode" {
			advice = "The backend's log names the event; it is a defect of whatever sent it, or of lapwing."
		}
		e.find(Finding{
			Severity: Warning, Part: Pipeline,
			Title:  "events do not reach their handlers",
			Detail: fmt.Sprintf("%s failed in the step %q in %s.", count(n, "delivery"), step, duration(e.seconds)),
			Advice: advice,
		})
	}
}

func deadlines(e *exam) {
	late := e.after.sum("lapwing_deadline_late_seconds")
	if late < 5 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Deadlines, Because: e.because(Disk, CPU, Log),
		Title:  "quiet agents and checks are noticed late",
		Detail: fmt.Sprintf("The deadlines that are handled now were due %s ago. Armed are %s.", duration(late), number(e.after.sum("lapwing_deadline_armed"))),
		Advice: "Each deadline that passes is an event: when very many agents go quiet at once this takes a while, and it waits when the event log does.",
	})
}

func schedules(e *exam) {
	missed, lateness := e.grown("lapwing_schedule_missed_total"), e.histogram("lapwing_schedule_lateness_seconds")
	late := below(lateness, 0.99)
	if missed == 0 && late < 1 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Schedule, Because: e.because(CPU),
		Title:  "checks are requested late",
		Detail: fmt.Sprintf("%s left out in %s because the next one was due; one request in a hundred was late by %s or more.", count(missed, "tick"), duration(e.seconds), duration(late)),
		Advice: "The backend has too little CPU, or its clock jumped. Fewer checks, longer intervals, or more CPU.",
	})
}

// sorted iterates over a map in the order of its keys.
func sorted(m map[string]float64) func(func(string, float64) bool) {
	return func(yield func(string, float64) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
