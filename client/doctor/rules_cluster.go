package doctor

import (
	"fmt"
	"math"
	"strings"
)

// Bounds of the rules about a cluster. What passes within seconds is left out: members come and go, and leaders are
// elected.
const (
	longAway        = 10      // seconds that a member is not heard
	longLeaderless  = 10      // seconds that a stream has no leader; an election takes up to 9 s
	longBehind      = 60      // seconds that a copy of a stream lacks something
	longMixed       = 60 * 60 // seconds that members run different versions
	skewedClock     = 5       // seconds
	manyDefinitions = 100     // changes that a member lacks in both scrapes
	manyMessages    = 500     // messages that a member has not folded in both scrapes
)

// clustered reports whether the backend is a member of a cluster.
func (e *exam) clustered() bool { return e.after.has("lapwing_cluster_size") }

// away returns how long each member that is away has not been heard.
func (e *exam) away() map[string]float64 {
	away := map[string]float64{}
	for member, seconds := range e.after.by("lapwing_cluster_member_away_seconds", "member") {
		if seconds > 0 {
			away[member] = seconds
		}
	}
	return away
}

// onNATS reports whether the log is on NATS servers that are run beside the members: then their number is not known.
func (e *exam) onNATS() bool { return e.clustered() && e.after.sum("lapwing_cluster_size") == 0 }

func (e *exam) membersHeard() string {
	if e.onNATS() {
		return number(e.after.sum("lapwing_cluster_member_up")) + " members are heard"
	}
	return fmt.Sprintf("%s of %s members are heard", number(e.after.sum("lapwing_cluster_member_up")),
		number(e.after.sum("lapwing_cluster_size")))
}

func membersAway(e *exam) {
	if !e.clustered() {
		return
	}
	for member, seconds := range sorted(e.away()) {
		if seconds < longAway {
			continue
		}
		f := Finding{
			Severity: Warning, Part: Cluster, Subject: member,
			Title:  "a member of the cluster is away",
			Detail: fmt.Sprintf("%s has not been heard for %s. %s.", member, duration(seconds), e.membersHeard()),
			Advice: "Start it again, or look for a broken network.",
		}
		if !e.found(Cluster) { // without a majority no member can be removed
			f.Advice += " If it is gone for good: lapwing cluster remove " + member + ", and start a member with an empty state directory."
		}
		e.find(f)
	}
	known := e.after.sum("lapwing_cluster_member_up") + float64(len(e.away()))
	if size := e.after.sum("lapwing_cluster_size"); known < size {
		e.find(Finding{
			Severity: Warning, Part: Cluster,
			Title:  "the cluster is not complete",
			Detail: fmt.Sprintf("%s of %s members are known.", number(known), number(size)),
			Advice: "Start the others. Until then the cluster survives the loss of fewer members than it should.",
		})
	}
}

func lease(e *exam) {
	if !e.after.has("lapwing_cluster_leased") || e.after.sum("lapwing_cluster_leased") > 0 {
		return
	}
	if e.onNATS() {
		e.find(Finding{
			Severity: Critical, Part: Cluster, Limits: true,
			Title:  "the backend cannot write to the event log on NATS",
			Detail: "It takes no agents and acts for nothing.",
			Advice: "Look at the NATS servers, the network to them, and their disks: each stream needs a leader. " +
				"lapwing cluster status names the streams without one.",
		})
		return
	}
	e.find(Finding{
		Severity: Critical, Part: Cluster, Limits: true,
		Title:  "the backend does not hear a majority of the cluster's members, or cannot write to the event log",
		Detail: e.membersHeard() + ". It takes no agents and acts for nothing.",
		Advice: "Look at the network between this backend and the others, and whether they run: lapwing cluster " +
			"status --api-url of another one shows their side.",
	})
}

func digestsDiffer(e *exam) {
	for member, n := range sorted(e.after.by("lapwing_cluster_digests_differ", "member")) {
		if n == 0 {
			continue
		}
		e.find(Finding{
			Severity: Critical, Part: Cluster, Subject: member,
			Title: "members have read different messages of the event log",
			Detail: fmt.Sprintf("This backend and %s differ in %s. The state of checks on one of the two is wrong.",
				member, count(n, "partition")),
			Advice: "Ask the third member too: the one that differs from both others is wrong. Stop it, remove it (lapwing " +
				"cluster remove), look at its disk, and start it with an empty state directory.",
		})
	}
}

func definitionsDiffer(e *exam) {
	for member, n := range sorted(e.after.by("lapwing_cluster_definitions_differ", "member")) {
		if n == 0 {
			continue
		}
		e.find(Finding{
			Severity: Critical, Part: Cluster, Subject: member,
			Title:  "members have different definitions",
			Detail: fmt.Sprintf("The copy of %s or of this backend lacks something, most often after damage to a disk.", member),
			Advice: "Ask the third member too: the one that differs from both others is wrong. Stop it, remove it (lapwing " +
				"cluster remove), look at its disk, and start it with an empty state directory.",
		})
	}
}

func leaderless(e *exam) {
	for stream, seconds := range sorted(e.after.by("lapwing_cluster_stream_leaderless_seconds", "stream")) {
		if seconds < longLeaderless {
			continue
		}
		f := Finding{
			Severity: Warning, Part: Cluster, Subject: stream,
			Title: "a stream of the broker has no leader",
			Detail: fmt.Sprintf("%s has had no leader that answers for %s. Nothing can be written to it.",
				stream, duration(seconds)),
			Advice: "It has one as soon as a majority of the members with a copy is connected. lapwing cluster " +
				"status shows the copies.",
		}
		if strings.HasPrefix(stream, "EVENTLOG_") {
			f.Severity, f.Limits = Critical, true
			f.Title = "a partition of the event log has no leader: it takes no events"
		}
		e.find(f)
	}
}

func copiesBehind(e *exam) {
	away := e.away()
	for member, seconds := range sorted(e.after.by("lapwing_cluster_copies_behind_seconds", "member")) {
		if _, isAway := away[member]; isAway || seconds < longBehind {
			continue
		}
		e.find(Finding{
			Severity: Warning, Part: Cluster, Subject: member,
			Title: "copies of the broker's streams are behind or missing",
			Detail: fmt.Sprintf("A copy of %s has not been what it should be for %s. "+
				"Until it is, the cluster survives the loss of fewer members.",
				member, duration(seconds)),
			Advice: "lapwing cluster status shows which one. Look at the disk and the network of " + member +
				"; its log has the reason.",
		})
	}
}

func leadersOnOne(e *exam) {
	all := func(s *Scrape) (member string) {
		led := s.by("lapwing_cluster_streams_led", "member")
		leaders, streams := 0, 0.0
		for name, n := range led {
			if streams += n; n > 0 {
				leaders, member = leaders+1, name
			}
		}
		if leaders != 1 || streams < 3 || s.sum("lapwing_cluster_member_up") < 3 {
			return ""
		}
		return member
	}
	member := all(e.after)
	if e.onNATS() || member == "" || all(e.before) != member {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Cluster, Subject: member,
		Title: "one member leads all streams of the broker",
		Detail: fmt.Sprintf("%s leads all of them. It does the work of all, and if it dies all wait for an election.",
			member),
		Advice: "The members spread the leaders by themselves within minutes. If they do not, their logs say why.",
	})
}

func memberDisks(e *exam) {
	reserve := e.after.sum("lapwing_disk_reserve_bytes")
	for member, free := range sorted(e.after.by("lapwing_cluster_disk_free_bytes", "member")) {
		if free >= 2*reserve {
			continue
		}
		f := Finding{
			Severity: Warning, Part: Disk, Subject: member,
			Title: "the disk of a member is nearly full",
			Detail: fmt.Sprintf("%s are free on the disk of %s; below %s it takes no events.",
				bytes(free), member, bytes(reserve)),
			Advice: "Make space on the disk of its state directory.",
		}
		if free < reserve {
			f.Severity, f.Title = Critical, "the disk of a member is full: it takes no events"
		}
		e.find(f)
	}
}

func memberClocks(e *exam) {
	for member, skew := range sorted(e.after.by("lapwing_cluster_clock_skew_seconds", "member")) {
		if math.Abs(skew) < skewedClock {
			continue
		}
		where := "ahead of"
		if skew < 0 {
			where = "behind"
		}
		e.find(Finding{
			Severity: Warning, Part: Clock, Subject: member,
			Title: "the clocks of the members differ",
			Detail: fmt.Sprintf("The clock of %s is %s %s that of the backend that was asked.",
				member, duration(math.Abs(skew)), where),
			Advice: "See that all members' clocks are synchronised (NTP). Which member acts does not depend on " +
				"clocks; the times that people see do.",
		})
	}
}

func membersBehind(e *exam) {
	for _, rule := range []struct {
		metric string
		bound  float64
		title  string
		what   string
		of     string
	}{
		{"lapwing_cluster_definitions_lag", manyDefinitions, "a member works with old definitions", "change", "of definitions"},
		{"lapwing_cluster_fold_lag_messages", manyMessages, "a member is behind the event log", "message",
			"of a partition of the event log"},
	} {
		was := e.before.by(rule.metric, "member")
		for member, n := range sorted(e.after.by(rule.metric, "member")) {
			if n < rule.bound || was[member] < rule.bound {
				continue
			}
			e.find(Finding{
				Severity: Warning, Part: Cluster, Subject: member, Because: e.because(Cluster),
				Title:  rule.title,
				Detail: fmt.Sprintf("%s lacks %s %s that another member has.", member, count(n, rule.what), rule.of),
				Advice: "Ask that member itself: lapwing doctor --api-url, with its URL from lapwing cluster status.",
			})
		}
	}
}

func versionsDiffer(e *exam) {
	seconds := e.after.sum("lapwing_cluster_versions_differ_seconds")
	if seconds < longMixed {
		return
	}
	e.find(Finding{
		Severity: Warning, Part: Cluster,
		Title: "the members run different versions",
		Detail: fmt.Sprintf("They have for %s. An upgrade goes from member to member, and should end.",
			duration(seconds)),
		Advice: "Upgrade the others: lapwing cluster status shows the version of each.",
	})
}
