package doctor

import (
	"fmt"
)

// use returns the used shares of limited resources.
func (e *exam) use() []Use {
	var all []Use
	add := func(p Part, subject string, used, limit float64, text string) {
		if limit > 0 {
			all = append(all, Use{Part: p, Subject: subject, Share: used / limit, Text: text})
		}
	}
	if e.seconds > 0 {
		add(CPU, "", e.cpu, e.cores, fmt.Sprintf("%s of %s cores", short(e.cpu), number(e.cores)))
		if busy, stolen := e.host(); busy > 0 {
			add(CPU, "machine", busy+stolen, 1, "of all processes together")
		}
	}
	rss, total := e.after.sum("process_resident_memory_bytes"), e.after.sum("lapwing_process_memory_limit_bytes")
	add(Memory, "", rss, total, fmt.Sprintf("%s of %s", bytes(rss), bytes(total)))
	fds, maxFDs := e.after.sum("process_open_fds"), e.after.sum("process_max_fds")
	add(Files, "", fds, maxFDs, fmt.Sprintf("%s of %s file descriptors", number(fds), number(maxFDs)))
	free, reserve := e.after.sum("lapwing_disk_free_bytes"), e.after.sum("lapwing_disk_reserve_bytes")
	if e.after.has("lapwing_disk_free_bytes") && free > 0 {
		add(Disk, "space", min(reserve, free), free, fmt.Sprintf("%s free, %s of it kept in reserve", bytes(free), bytes(reserve)))
	}
	events := e.after.has("lapwing_eventlog_position")
	if e.seconds > 0 && events {
		commits := e.histogram("lapwing_eventlog_commit_seconds")
		add(Log, "", e.perSecond(commits.sum), e.partitions, fmt.Sprintf("of the time its %s writers commit; %s commits/s, %s each", number(e.partitions), number(e.perSecond(commits.count)), duration(commits.mean())))
	}
	pending, limit := e.after.most("lapwing_eventlog_pending_bytes"), e.after.sum("lapwing_eventlog_pending_limit_bytes")
	add(Log, "buffer", pending, limit, fmt.Sprintf("%s of %s in the fullest partition", bytes(pending), bytes(limit)))
	if e.seconds > 0 && events {
		fold := e.histogram("lapwing_state_fold_seconds")
		add(Fold, "", e.foldShare(), 1, fmt.Sprintf("of the time its %s goroutines fold; %s messages/s, %s each", number(e.partitions), number(e.perSecond(fold.count)), duration(fold.mean())))
	}
	dirty, maxDirty := e.after.sum("lapwing_state_dirty_bytes"), e.after.sum("lapwing_state_dirty_limit_bytes")
	add(WriteBack, "", dirty, maxDirty, fmt.Sprintf("%s of %s wait; %s changes/s are written", bytes(dirty), bytes(maxDirty), number(e.rate("lapwing_state_written_total"))))
	if name, h, share := e.busiest(); name != "" {
		add(Handler, name, share, 1, fmt.Sprintf("of its %s workers; it is the busiest handler; %s", number(h.workers), h.queue()))
	}
	return append(all, e.useOfMetrics()...)
}

// useOfMetrics is use of the metrics half.
func (e *exam) useOfMetrics() (all []Use) {
	add := func(subject, used, limit string, text func(float64) string, noun string) {
		n, most := e.after.sum(used), e.after.sum(limit)
		if most > 0 {
			all = append(all, Use{Part: Metrics, Subject: subject, Share: n / most, Text: text(n) + " of " + text(most) + noun})
		}
	}
	add("memory", "lapwing_metric_store_memory_bytes", "lapwing_metric_store_memory_limit_bytes", bytes, "")
	add("series", "lapwing_metric_store_series", "lapwing_metric_store_series_limit", number, " series")
	add("queue", "lapwing_metric_store_queued_points", "lapwing_metric_store_queue_limit_points", number, " points")
	add("members", "lapwing_metric_member_spill_bytes", "lapwing_metric_member_spill_limit_bytes", bytes, " on disk")
	add("relay", "lapwing_metric_relay_spill_bytes", "lapwing_metric_relay_spill_limit_bytes", bytes, " on disk")
	return all
}

// busiest returns the handler whose workers have the least time left.
func (e *exam) busiest() (name string, figures handlerFigures, share float64) {
	for _, candidate := range e.handlerNames() {
		h := e.handlerFigures(candidate)
		// Running runs, or finished ones: a hanging run shows in the former, many short ones in the latter.
		busy := min(1, max(h.running/h.workers, e.perSecond(h.runs.sum)/h.workers))
		if name == "" || busy > share {
			name, figures, share = candidate, h, busy
		}
	}
	return name, figures, share
}
