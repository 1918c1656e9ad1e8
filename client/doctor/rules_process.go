package doctor

import (
	"fmt"
	"maps"
	"slices"
)

func memory(e *exam) {
	used, limit := e.after.sum("process_resident_memory_bytes"), e.after.sum("lapwing_process_memory_limit_bytes")
	if limit == 0 || used/limit < 0.8 {
		return
	}
	f := Finding{
		Severity: Warning, Part: Memory,
		Title: "memory is running out",
		Detail: fmt.Sprintf("The process has %s of the %s there are. %s, %s known, %s of events to write back, %s of deliveries in queues.",
			bytes(used), bytes(limit), count(e.after.sum("lapwing_agent_sessions"), "session"), count(e.after.sum("lapwing_state_pairs"), "check"),
			bytes(e.after.sum("lapwing_state_dirty_bytes")), bytes(e.after.sum("lapwing_handler_queue_bytes"))),
		Advice: "More memory. Near --memory-limit the garbage collector works harder: set it lower if it is above 80% of the memory. " +
			"Queues of handlers that do not keep up (--handler-queue) and large outputs of checks take memory, too.",
	}
	if used/limit >= 0.92 {
		f.Severity, f.Limits = Critical, true
		f.Title = "memory is all but used up: the process may be killed"
	}
	e.find(f)
}

func files(e *exam) {
	used, limit := e.after.sum("process_open_fds"), e.after.sum("process_max_fds")
	if limit == 0 || used/limit < 0.8 {
		return
	}
	f := Finding{
		Severity: Warning, Part: Files,
		Title:  "file descriptors are running out",
		Detail: fmt.Sprintf("%s of %s are open; each agent takes one, %s are connected.", number(used), number(limit), number(e.after.sum("lapwing_agent_sessions"))),
		Advice: "Raise the limit of open files of the process: ulimit -n, or LimitNOFILE in the systemd unit.",
	}
	if used/limit >= 0.95 {
		f.Severity, f.Limits = Critical, true
		f.Title = "file descriptors are used up: no more agents can connect"
	}
	e.find(f)
}

// connections checks the bounds of the listeners, which are reached before the files are used up.
func connections(e *exam) {
	used, limits := e.after.by("lapwing_connections", "listener"), e.after.by("lapwing_connections_limit", "listener")
	unproven := e.after.by("lapwing_connections_unproven", "listener")
	for _, listener := range slices.Sorted(maps.Keys(limits)) {
		n, limit := used[listener], limits[listener]
		if limit == 0 || n/limit < 0.8 {
			continue
		}
		f := Finding{
			Severity: Warning, Part: Files,
			Title: fmt.Sprintf("connections of the listener %q are running out", listener),
			Detail: fmt.Sprintf("%s of %s are open, %s of them by clients that have not signed in.", number(n), number(limit),
				number(unproven[listener])),
			Advice: fmt.Sprintf("Raise the limit of open files (LimitNOFILE), from which the bound comes, or --%s-max-connections "+
				"if that is set. If most have not signed in, look in the log for their addresses.",
				map[bool]string{true: "agent", false: "api"}[listener == "agents"]),
		}
		if n/limit >= 0.95 {
			f.Severity, f.Limits = Critical, true
			f.Title = fmt.Sprintf("connections of the listener %q are used up: further clients are refused", listener)
		}
		e.find(f)
	}
}

func cpu(e *exam) {
	waited := e.histogram("go_sched_latencies_seconds")
	tail := below(waited, 0.99)
	busy, stolen := e.host()
	switch share := e.cpuShare(); {
	case e.seconds == 0:
	case share >= busyCPU:
		e.find(Finding{
			Severity: Warning, Part: CPU, Limits: true,
			Title: "the CPU is used up",
			Detail: fmt.Sprintf("%s of %s cores are in use%s. Work that could run waits for a core; one in a hundred times for %s or more.",
				short(e.cpu), number(e.cores), e.perEvent(), duration(tail)),
			Advice: "More cores, or fewer events. Fewer and larger commits cost less per event (--event-log-flush-interval); handlers that are commands cost most (see deliveries/s).",
		})
	case busy+stolen >= busyCPU:
		e.find(Finding{
			Severity: Warning, Part: CPU, Limits: true,
			Title: "the machine's CPU is used up, and not by this process alone",
			Detail: fmt.Sprintf("The machine is busy %s of its time, and others on its host take %s. This process uses %s of %s cores%s. Work that could run waits for a core; one in a hundred times for %s or more.",
				percent(busy), percent(stolen), short(e.cpu), number(e.cores), e.perEvent(), duration(tail)),
			Advice: "Check what else runs on the machine (handlers that are commands count there), and move it, or give the " +
				"backend a machine of its own.",
		})
	case tail >= 0.1:
		e.find(Finding{
			Severity: Warning, Part: CPU, Limits: true,
			Title: "the process does not get the CPU it could use",
			Detail: fmt.Sprintf("It uses %s of %s cores, yet work that could run waits for a core: one in a hundred times for %s or more.",
				short(e.cpu), number(e.cores), duration(tail)),
			Advice: "Something else on this machine takes the CPU: other processes, other virtual machines (steal), or a CPU quota that is used up (cpu.max of the control group).",
		})
	}
}

// host returns the used share of the machine's CPU time, and the share taken by other virtual machines.
func (e *exam) host() (busy, stolen float64) {
	modes := e.grownBy("lapwing_host_cpu_seconds_total", "mode")
	all := 0.0
	for _, seconds := range modes {
		all += seconds
	}
	if all == 0 {
		return 0, 0
	}
	return modes["busy"] / all, modes["steal"] / all
}

func (e *exam) perEvent() string {
	if s := e.summary(); s.CPUPerEvent > 0 {
		return fmt.Sprintf(", %s for each of %s events/s", duration(s.CPUPerEvent), number(s.Folded))
	}
	return ""
}

func garbage(e *exam) {
	gc, used := e.grown("go_cpu_classes_gc_total_cpu_seconds_total"), e.grown("process_cpu_seconds_total")
	// A single collection of an idle process means nothing.
	if e.seconds == 0 || e.cpuShare() < 0.2 || gc/used < 0.3 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Memory, Limits: true,
		Title:  "the garbage collector takes much of the CPU",
		Detail: fmt.Sprintf("%s of the CPU that the process uses; its heap is %s.", percent(min(1, gc/used)), bytes(e.after.sum("go_memstats_heap_alloc_bytes"))),
		Advice: "If the heap is near --memory-limit or GOMEMLIMIT, that is too small; else raise GOGC (400 trades memory for CPU).",
	})
}

// The time before the end of a certificate from which on it is a finding, in seconds: the time to get another one, and the
// time in which that is urgent.
const (
	certificateEndsSoon = 30 * 86400
	certificateEndsNow  = 7 * 86400
)

// certificates checks when the server's own certificates end.
func certificates(e *exam) {
	shownTo := map[string]string{
		"api": "clients", "agents": "agents", "cluster": "the other members", "nats": "the NATS servers",
		"carbon": "senders of points", "relay": "the destinations of the relay",
	}
	effects := map[string]string{
		"api": "no client connects", "agents": "no agent connects",
		"cluster": "this member loses the others when a connection between them ends",
		"nats":    "this backend loses the NATS servers when its connection ends",
		"carbon":  "no sender connects by TLS",
		"relay":   "destinations that ask for a certificate refuse new connections, and points for them wait",
	}
	for files, ends := range sorted(e.after.by("lapwing_tls_certificate_expiry_seconds", "files")) {
		left := ends - float64(e.after.At.Unix())
		if ends == 0 || left > certificateEndsSoon { // 0 is none
			continue
		}
		f := Finding{
			Severity: Warning, Part: Process, Subject: files,
			Title:  "a certificate ends soon",
			Detail: fmt.Sprintf("The certificate that %s are shown ends in %s. Then %s.", shownTo[files], duration(left), effects[files]),
			Advice: "Replace its file and that of its key: they are read again without a restart.",
		}
		if left <= certificateEndsNow {
			f.Severity = Critical
		}
		if left <= 0 {
			f.Title = "a certificate has ended"
			f.Detail = fmt.Sprintf("The certificate that %s are shown ended %s ago: %s.", shownTo[files], duration(-left), effects[files])
		}
		e.find(f)
	}
}
