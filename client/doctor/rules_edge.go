package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

func agentsRead(e *exam) {
	dropped := e.grown("lapwing_agent_dropped_frames_total")
	if dropped == 0 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Agents, Limits: true,
		Title:  "agents do not read what is sent to them",
		Detail: fmt.Sprintf("Given up in %s because an agent's queue was full: %s. Most of what agents are sent is check requests; these checks do not run.", duration(e.seconds), count(dropped, "frame")),
		Advice: "Some agents hang or are overloaded, or the network to them is stuck.",
	})
}

func agentsStopped(e *exam) {
	stopped := e.after.sum("lapwing_agent_reads_stopped")
	if stopped == 0 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Agents, Limits: true,
		Title: "long messages of agents are not read: the memory for messages is used up",
		Detail: fmt.Sprintf("%s must wait with messages over 8 KiB. Of %s, messages that have arrived and wait have %s, and messages that are arriving %s.",
			count(stopped, "agent"), bytes(e.after.sum("lapwing_agent_partial_limit_bytes")), bytes(e.after.sum("lapwing_agent_waiting_bytes")),
			bytes(e.after.sum("lapwing_agent_partial_bytes"))),
		Advice: "If most of it waits, read the other findings about the event log, the disk and quotas. Otherwise agents " +
			"send slowly, or many long messages at a time: raise --agent-partial-bytes if there is memory.",
	})
}

// agentsPassword checks for the documented default password.
func agentsPassword(e *exam) {
	if e.after.sum("lapwing_auth_default_agent_password") == 0 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Agents,
		Title: "agents can sign in with the default password",
		Detail: "The user agent has the password that Sensu documents. Every client that reaches the agents' port can register hosts and " +
			"report results of any name.",
		Advice: "Give the agents certificates (--agent-auth-trusted-ca-file, --agent-auth-match-name), or change the password: " +
			"lapwing user reset-password agent --interactive, and --password of the agents.",
	})
}

// aggregates checks for aggregates whose members are not limited by their author's rights.
func aggregates(e *exam) {
	if n := e.after.sum("lapwing_aggregates_forbidden"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: API,
			Title: "aggregates have no members because of their authors",
			Detail: fmt.Sprintf("The authors of %s may not list events any more, or are no users any more. The results are unknown "+
				"until then.", count(n, "aggregate")),
			Advice: "The backend's log and the results name the author. Write the aggregate again as a user who may list the events.",
		})
	}
	if n := e.after.sum("lapwing_aggregates_authorless"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: API,
			Title: "aggregates from an earlier version have all events of their namespace as members",
			Detail: fmt.Sprintf("%s came before authors were kept, so roles that are limited by labels do not limit what the output names.",
				count(n, "aggregate")),
			Advice: "Write them again, for example with lapwing dump lapwing/v1.Aggregate and lapwing create: then they have the " +
				"events that their new author may list.",
		})
	}
}

// drains reports whether the backend sends its agents away: then neither refusals nor disconnects are findings.
func (e *exam) drains() bool { return e.after.sum("lapwing_agent_draining") > 0 }

func agentsDrained(e *exam) {
	if !e.drains() {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Agents,
		Title:  "the backend is drained",
		Detail: fmt.Sprintf("Agents are sent to other backends, %s left. Its /ready answers 503.", count(e.after.sum("lapwing_agent_sessions"), "agent")),
		Advice: "It takes agents again after lapwing cluster drain --undo, or when it is restarted.",
	})
}

var refusals = map[string]string{
	"400": "what they send is no handshake",
	"401": "wrong user or password",
	"403": "their user may not be an agent there",
	"404": "their namespace does not exist",
	"503": "the backend could not look up their user",
}

func agentsRefused(e *exam) {
	grown := e.grownBy("lapwing_agent_handshakes_total", "status")
	delete(grown, "101")
	if e.drains() {
		delete(grown, "503")
	}
	if len(grown) > 0 {
		sum := 0.0
		var why []string
		for status, n := range sorted(grown) {
			sum += n
			reason := refusals[status]
			if reason == "" {
				reason = "refused"
			}
			why = append(why, fmt.Sprintf("%s with status %s (%s)", number(n), status, reason))
		}
		e.find(Finding{
			Severity: Warning, Part: Agents,
			Title:  "agents are refused",
			Detail: fmt.Sprintf("%s in %s: %s.", count(sum, "handshake"), duration(e.seconds), strings.Join(why, ", ")),
			Advice: "The backend's log names the agents with bad credentials. Correct their user, password or namespace.",
		})
	}
	if n := e.rate("lapwing_auth_password_hashes_total"); n >= 2 {
		e.find(Finding{
			Severity: Warning, Part: Agents, Limits: e.found(CPU),
			Title:  "passwords cost much CPU",
			Detail: fmt.Sprintf("%s slow hashes a second, of about 50 ms each: passwords that are wrong are hashed each time, right ones once.", number(n)),
			Advice: "Find who connects with a wrong password; the backend's log names them.",
		})
	}
	if n := e.grown("lapwing_agent_bad_frames_total"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: Agents,
			Title:  "agents send what cannot be understood",
			Detail: fmt.Sprintf("%s in %s that are too large or not of the protocol.", count(n, "message"), duration(e.seconds)),
			Advice: "The backend's log names the agents. Messages over --agent-max-message end their session.",
		})
	}
}

func agentsLost(e *exam) {
	was, are := e.before.sum("lapwing_agent_sessions"), e.after.sum("lapwing_agent_sessions")
	if lost := was - are; lost >= 10 && lost >= was/10 && !e.drains() {
		e.find(Finding{
			Severity: Warning, Part: Agents,
			Title:  "many agents disconnect",
			Detail: fmt.Sprintf("%s were connected, %s later %s are.", number(was), duration(e.seconds), number(are)),
			Advice: "If they were not stopped on purpose, look at the network and at load balancers between them and the backend.",
		})
	}
}

func agentsPaced(e *exam) {
	names := map[float64]string{1: "to send slowly", 2: "to send nothing"}
	told, ok := names[e.after.most("lapwing_agent_pace")]
	if !ok {
		return
	}
	because := e.because(Disk, Log, CPU, Fold)
	if since := e.after.most("lapwing_overloaded_since_seconds"); since > 0 {
		skipped, sent := e.grown("lapwing_check_requests_skipped_total"), e.grown("lapwing_check_requests_total")
		e.find(Finding{
			Severity: Warning, Part: Agents, Limits: because == "", Because: because,
			Title: fmt.Sprintf("overloaded since %s: %s of runs skipped",
				time.UnixMilli(int64(since*1000)).UTC().Format("2006-01-02 15:04:05 UTC"), percent(skipped/max(1, skipped+sent))),
			Detail: fmt.Sprintf("Agents that are asked for each run are asked less often, so that results stay new: %s of %s were "+
				"skipped in %s; %s are held back now. Keepalives are taken and agents that fail are noticed; TTLs of checks whose "+
				"runs are held back do not count.",
				number(skipped), count(skipped+sent, "run"), duration(e.seconds), count(e.after.sum("lapwing_agents_held_back"), "agent")),
			Advice: "Longer check intervals, more CPU or another backend; see what else uses this machine. It ends by itself when " +
				"the backend keeps up again.",
		})
	}
	e.find(Finding{
		Severity: Warning, Part: Agents, Limits: because == "", Because: because,
		Title:  "agents were told " + told,
		Detail: fmt.Sprintf("%s connected. The lapwing agents among them hold back their events and keep them.", count(e.after.sum("lapwing_agent_sessions"), "agent")),
		Advice: "It lifts this by itself when the event log and the state keep up again.",
	})
}

func agentsRepeat(e *exam) {
	repeated, folded := e.grown("lapwing_events_duplicate_total"), e.grown("lapwing_events_folded_total")
	if repeated < 10 || repeated < folded/10 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Agents,
		Title:  "agents send events again and again",
		Detail: fmt.Sprintf("%s of %s events came a second time; each counted once.", number(repeated), number(folded)),
		Advice: "After many reconnects this is as it should be. Else acknowledgements do not reach the agents in time: look at the network.",
	})
}

func agentsDuplicate(e *exam) {
	n := e.after.sum("lapwing_agent_duplicate_names")
	if n == 0 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Agents,
		Title:  "several agents have one name",
		Detail: fmt.Sprintf("Under %s several agents are connected. Their results mix, and each hides the other's silence.", count(n, "name")),
		Advice: "The events duplicate-agent-NAME of entity lapwing-backend, and the backend's log, have the names and " +
			"addresses. Give each agent a name of its own.",
	})
}

func quotas(e *exam) {
	refused, held := e.grownBy("lapwing_quota_refused_total", "quota"), e.grownBy("lapwing_quota_held_seconds_total", "quota")
	if len(refused)+len(held) == 0 {
		return
	}
	var what []string
	for quota, n := range sorted(refused) {
		what = append(what, fmt.Sprintf("%s by --%s", count(n, "refusal"), quota))
	}
	for quota, seconds := range sorted(held) {
		what = append(what, fmt.Sprintf("agents held up for %s by --%s", duration(seconds), quota))
	}
	e.find(Finding{
		Severity: Warning, Part: Agents,
		Title:  "quotas are used up",
		Detail: fmt.Sprintf("In %s: %s.", duration(e.seconds), strings.Join(what, ", ")),
		Advice: "The backend's log names the agents. See whether they send what they should; delete entities that are not " +
			"needed, or raise the quota.",
	})
}

func rejected(e *exam) {
	grown := e.grownBy("lapwing_events_rejected_total", "reason")
	if len(grown) == 0 {
		return
	}
	sum := 0.0
	var why []string
	for reason, n := range sorted(grown) {
		sum += n
		why = append(why, number(n)+" "+reason)
	}
	e.find(Finding{
		Severity: Warning, Part: Agents,
		Title:  "events are refused",
		Detail: fmt.Sprintf("%s in %s, by reason: %s.", count(sum, "event"), duration(e.seconds), strings.Join(why, ", ")),
		Advice: "The backend's log names the senders (\"event was not taken\"), once a minute for each and reason. invalid and " +
			"undecodable are faults of the sender; too_large is more than can be stored; namespace is an event for another " +
			"namespace than the agent's, entity one about another agent; quota is a quota that is used up; log is the event log that was closed.",
	})
}

func clock(e *exam) {
	n := e.grown("lapwing_events_clock_skewed_total")
	if n == 0 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Clock,
		Title:  "clocks differ",
		Detail: fmt.Sprintf("%s in %s dated more than 10 minutes in the future; they got the time of their receipt.", count(n, "event"), duration(e.seconds)),
		Advice: "The clocks of some agents are ahead, or the backend's is behind. See that all of them are synchronised (NTP).",
	})
}

func config(e *exam) {
	if n := e.after.sum("lapwing_config_unusable_total"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: Config,
			Title:  "definitions cannot be used",
			Detail: fmt.Sprintf("Left out since the start because it could not be decoded: %s.", count(n, "stored definition")),
			Advice: "The backend's log names them. Write them again, or delete them.",
		})
	}
	if n := e.after.sum("lapwing_state_undecodable_total"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: Config,
			Title:  "stored events cannot be read",
			Detail: fmt.Sprintf("Passed over since the start: %s.", count(n, "record")),
			Advice: "The backend's log names them. A version that is older than the data, or a damaged disk, can be the cause.",
		})
	}
}

func apiErrors(e *exam) {
	codes := e.grownBy("lapwing_api_requests_total", "code")
	all, bad := 0.0, 0.0
	for code, n := range codes {
		all += n
		if strings.HasPrefix(code, "5") {
			bad += n
		}
	}
	panics := e.grown("lapwing_api_panics_total")
	if bad == 0 && panics == 0 {
		return
	}
	var which []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if strings.HasPrefix(code, "5") {
			which = append(which, fmt.Sprintf("%s with %s", number(codes[code]), code))
		}
	}
	f := Finding{
		Severity: Warning, Part: API, Because: e.because(Disk, Log),
		Title:  "the API fails",
		Detail: fmt.Sprintf("Of %s in %s failed: %s.", count(all, "request"), duration(e.seconds), strings.Join(which, ", ")),
		Advice: "503 is the answer while the event log takes nothing. The backend's log has the others.",
	}
	if panics > 0 {
		f.Detail += fmt.Sprintf(" %s ended in a panic.", number(panics))
		f.Advice = "A panic is a defect of lapwing; the backend's log has its stack."
	}
	e.find(f)
}

func apiSpeed(e *exam) {
	requests := e.histogram("lapwing_api_request_duration_seconds")
	slow := below(requests, 0.99)
	if requests.count < 10 || slow < 1 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: API, Because: e.because(Disk, CPU, Log, Fold),
		Title:  "the API is slow",
		Detail: fmt.Sprintf("Of %s in %s one in a hundred took %s or more, the mean is %s.", count(requests.count, "request"), duration(e.seconds), duration(slow), duration(requests.mean())),
		Advice: "Writes of events wait for the log and the fold; lists without limit of all events take long when there are many.",
	})
}

func streams(e *exam) {
	ended, age := e.grown("lapwing_api_stream_overflows_total"), e.after.sum("lapwing_api_stream_backlog_age_seconds")
	if ended == 0 && age < 5 {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: API,
		Title: "live views do not keep up",
		Detail: fmt.Sprintf("%s open; %s wait to be sent, the oldest for %s; %s ended in %s because the client was too slow.",
			count(e.after.sum("lapwing_api_streams"), "stream"), count(e.after.sum("lapwing_api_stream_backlog"), "event"), duration(age), number(ended), duration(e.seconds)),
		Advice: "Their clients, or the network to them, are slow. They connect again and read everything anew. Nothing else waits for them.",
	})
}
