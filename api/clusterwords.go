package api

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds from which on the status of a cluster says that something is wrong. What members say of each other is up to half
// a second old, so a small lag means nothing.
const (
	muchBehind = 500
	wrongClock = 5 * time.Second
	longQuiet  = 5 * time.Second // of a copy whose leader is asked
)

// problems says in words what is wrong, the worst first.
func (s *ClusterStatus) problems() []string {
	words := []string{} // an empty array in JSON
	add := func(more ...string) { words = append(words, more...) }
	add(s.digestsDiffer()...)
	add(s.definitionsWrong()...)
	add(s.withoutLease()...)
	add(s.withoutLeader()...)
	add(s.withoutOwner()...)
	add(s.membersAway()...)
	add(s.allDrain()...)
	add(s.membersNotActing()...)
	add(s.copiesMissing()...)
	add(s.disksFull()...)
	add(s.clocksWrong()...)
	add(s.membersBehind()...)
	add(s.leadersOnOne()...)
	add(s.versionsDiffer()...)
	return words
}

// digestsDiffer names members that have folded other messages than the backend that answers.
func (s *ClusterStatus) digestsDiffer() (words []string) {
	for _, m := range s.Members {
		var partitions []string
		for _, p := range m.DigestsDiffer {
			partitions = append(partitions, fmt.Sprintf("partition %d", p))
		}
		if len(partitions) > 0 {
			words = append(words, fmt.Sprintf("%s and %s have read different messages in %s of the event log: "+
				"ask the third member which of them is wrong, and give that one an empty state directory",
				s.Member, m.Name, listed(partitions)))
		}
	}
	return words
}

// longStand is how long a member may lack definitions and get none: the broker makes a copy anew that stands still for a
// minute.
const longStand = 90 * time.Second

// definitionsWrong names members with other definitions than the backend that answers, and members that get none.
func (s *ClusterStatus) definitionsWrong() (words []string) {
	for _, m := range s.Members {
		if m.DefinitionsDiffer {
			words = append(words, fmt.Sprintf("%s and %s have different definitions: ask the third member which of them is wrong, "+
				"and give that one an empty state directory", s.Member, m.Name))
		}
		if m.DefinitionsStandSeconds >= longStand.Seconds() {
			words = append(words, fmt.Sprintf("%s has got no definitions for %.0f s, and lacks changes: restart it; if that does not "+
				"help, remove it and give it an empty state directory", m.Name, m.DefinitionsStandSeconds))
		}
	}
	return words
}

func (s *ClusterStatus) withoutLease() []string {
	if len(s.Members) == 0 {
		return []string{"the backend that answers does not know its members at present"}
	}
	for _, m := range s.Members {
		if m.Self && !m.Leased {
			if s.NATS != "" {
				return []string{m.Name + notWritten}
			}
			return []string{fmt.Sprintf("%s does not hear a majority of the %d members, or cannot write to the "+
				"event log: it acts for nothing and takes no agents", m.Name, s.Size)}
		}
	}
	return nil
}

// notWritten is what it means that a member has no lease on NATS servers that are run beside the members.
const notWritten = " cannot write to the event log on NATS: it acts for nothing and takes no agents"

// withoutLeader names the streams that take nothing.
func (s *ClusterStatus) withoutLeader() (words []string) {
	if s.LeaderError != "" {
		words = append(words, "whether the broker has a leader is not known: "+s.LeaderError)
	} else if s.Leader == "" && s.NATS == "" {
		words = append(words, "the broker has no leader: no majority of the members is connected")
	}
	none, unknown := map[string][]string{}, map[string][]string{}
	for _, st := range s.Streams {
		switch {
		case st.Error != "":
			unknown[st.Error] = append(unknown[st.Error], the(st.Holds))
		case st.Leader == "":
			none[effect(st.Holds)] = append(none[effect(st.Holds)], the(st.Holds))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(none)) {
		words = append(words, fmt.Sprintf("%s %s no leader: %s", listed(none[what]), has(none[what]), what))
	}
	for _, why := range slices.Sorted(maps.Keys(unknown)) {
		words = append(words, fmt.Sprintf("how %s %s is not known, perhaps without a leader: %s",
			listed(unknown[why]), map[bool]string{true: "stands", false: "stand"}[len(unknown[why]) == 1], why))
	}
	return words
}

// withoutOwner names the partitions that no roster gives to a member.
func (s *ClusterStatus) withoutOwner() []string {
	var none []string
	for _, p := range s.Partitions {
		if p.Owner == "" {
			none = append(none, fmt.Sprint("partition ", p.Partition))
		}
	}
	if len(none) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s %s no owner: alerts wait", listed(none), has(none))}
}

// the adds the article to what a stream holds, except to a partition.
func the(holds string) string {
	if strings.HasPrefix(holds, "partition ") {
		return holds
	}
	return "the " + holds
}

// effect says what it means that a stream has no leader.
func effect(holds string) string {
	switch {
	case strings.HasPrefix(holds, "partition"):
		return "the log takes nothing"
	case holds == "definitions":
		return "they cannot be changed"
	}
	return "nothing can be added"
}

func (s *ClusterStatus) membersAway() (words []string) {
	var away []string
	up := 0
	for _, m := range s.Members {
		if m.Up {
			up++
			continue
		}
		away = append(away, fmt.Sprintf("%s for %s", m.Name, inWords(m.AwaySeconds)))
	}
	if all := max(s.Size, len(s.Members)); len(away) > 0 {
		is := map[bool]string{true: "is", false: "are"}[len(away) == 1]
		words = append(words, fmt.Sprintf("%d of %d members %s away: %s", len(away), all, is, listed(away)))
	}
	if missing := s.Size - len(s.Members); missing > 0 && len(s.Members) > 0 {
		words = append(words, fmt.Sprintf("%d of %d members %s not known: start %s", missing, s.Size,
			map[bool]string{true: "is", false: "are"}[missing == 1], map[bool]string{true: "it", false: "them"}[missing == 1]))
	}
	if extra := up - s.Size; extra > 0 {
		words = append(words, fmt.Sprintf("%d members are connected, and %s counts on %d: name all of them in its --peers",
			up, s.Member, s.Size))
	}
	return words
}

// allDrain says that agents find no backend.
func (s *ClusterStatus) allDrain() []string {
	up := 0
	for _, m := range s.Members {
		switch {
		case m.Up && !m.Draining:
			return nil
		case m.Up:
			up++
		}
	}
	if up == 0 {
		return nil
	}
	return []string{"all members that are up drain: no agent finds a backend; end a drain with lapwing cluster drain --undo"}
}

// membersNotActing names members that are heard and still do not act.
func (s *ClusterStatus) membersNotActing() (words []string) {
	for _, m := range s.Members {
		switch {
		case !m.Up || m.Self && !m.Leased:
		case m.Leaving:
			words = append(words, m.Name+" is stopping")
		case !m.Ready:
			words = append(words, m.Name+" is starting: it reads the event log")
		case !m.Leased && s.NATS != "":
			words = append(words, m.Name+notWritten)
		case !m.Leased:
			words = append(words, m.Name+" does not hear a majority of the members, or cannot write to the event log: "+
				"it acts for nothing and takes no agents")
		case !m.OnRoster:
			words = append(words, m.Name+" is connected, and not on the list of members yet")
		}
	}
	return words
}

func (s *ClusterStatus) copiesMissing() (words []string) {
	away := map[string]bool{}
	for _, m := range s.Members {
		away[m.Name] = !m.Up
	}
	few, gone, behind := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, st := range s.Streams {
		if st.Error != "" || st.Leader == "" {
			continue
		}
		if n := 1 + len(st.Replicas); n < st.Copies {
			what := fmt.Sprintf("%d of %d copies", n, st.Copies)
			few[what] = append(few[what], the(st.Holds))
		}
		for _, r := range st.Replicas {
			switch {
			case away[r.Member]:
			case r.Offline || r.HeardSeconds > longQuiet.Seconds():
				gone[r.Member] = append(gone[r.Member], the(st.Holds))
			case r.Lag >= muchBehind:
				behind[r.Member] = append(behind[r.Member], fmt.Sprintf("%s (%d changes)", the(st.Holds), r.Lag))
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(few)) {
		words = append(words, fmt.Sprintf("%s %s only %s", listed(few[what]), has(few[what]), what))
	}
	for _, member := range slices.Sorted(maps.Keys(gone)) {
		words = append(words, fmt.Sprintf("%s has copies that do not answer: %s", member, listed(gone[member])))
	}
	for _, member := range slices.Sorted(maps.Keys(behind)) {
		words = append(words, fmt.Sprintf("%s has copies that lag behind: %s", member, listed(behind[member])))
	}
	return words
}

func (s *ClusterStatus) disksFull() (words []string) {
	for _, m := range s.Members {
		if !m.Up || m.DiskFree == 0 || m.DiskFree >= 2*s.DiskReserve {
			continue
		}
		free := fmt.Sprintf("%d MB are free", m.DiskFree/1_000_000)
		if m.DiskFree < s.DiskReserve {
			words = append(words, fmt.Sprintf("the disk of %s is full: %s", m.Name, free))
		} else {
			words = append(words, fmt.Sprintf("the disk of %s is nearly full: %s", m.Name, free))
		}
	}
	return words
}

func (s *ClusterStatus) clocksWrong() (words []string) {
	for _, m := range s.Members {
		skew := m.ClockSkewSeconds
		if !m.Up || math.Abs(skew) < wrongClock.Seconds() {
			continue
		}
		where := "ahead of"
		if skew < 0 {
			where = "behind"
		}
		words = append(words, fmt.Sprintf("the clock of %s is %.0f s %s that of %s", m.Name, math.Abs(skew), where, s.Member))
	}
	return words
}

func (s *ClusterStatus) membersBehind() (words []string) {
	for _, m := range s.Members {
		if !m.Up || !m.Ready {
			continue
		}
		if m.DefinitionsLag >= muchBehind {
			words = append(words, fmt.Sprintf("%s lacks %d changes of definitions", m.Name, m.DefinitionsLag))
		}
		for p, n := range m.FoldLag {
			if n >= muchBehind {
				words = append(words, fmt.Sprintf("%s has to fold %d messages of partition %d", m.Name, n, p))
			}
		}
	}
	return words
}

// leadersOnOne finds that one of several members leads all streams.
func (s *ClusterStatus) leadersOnOne() []string {
	up, leads := 0, map[string]int{}
	for _, m := range s.Members {
		if m.Up && m.Ready {
			up++
		}
	}
	for _, st := range s.Streams {
		if st.Leader == "" {
			return nil
		}
		leads[st.Leader]++
	}
	if s.NATS != "" || up < 3 || len(leads) != 1 || len(s.Streams) < 3 {
		return nil
	}
	return []string{fmt.Sprintf("%s leads all %d streams: if it dies, all of them wait for an election",
		s.Streams[0].Leader, len(s.Streams))}
}

func (s *ClusterStatus) versionsDiffer() []string {
	of := map[string][]string{}
	for _, m := range s.Members {
		if m.Up && m.Version != "" {
			of[m.Version] = append(of[m.Version], m.Name)
		}
	}
	if len(of) < 2 {
		return nil
	}
	var run []string
	for _, version := range slices.Sorted(maps.Keys(of)) {
		run = append(run, fmt.Sprintf("%s (%s)", version, strings.Join(of[version], ", ")))
	}
	return []string{"the members run different versions: " + listed(run)}
}

// listed joins names: "partition 0 and partition 2" becomes "partitions 0 and 2".
func listed(names []string) string {
	if len(names) > 1 {
		numbers := make([]string, 0, len(names))
		for _, name := range names {
			number, ok := strings.CutPrefix(name, "partition ")
			if _, err := strconv.Atoi(number); !ok || err != nil {
				numbers = nil
				break
			}
			numbers = append(numbers, number)
		}
		if numbers != nil {
			return "partitions " + joined(numbers)
		}
	}
	return joined(names)
}

func joined(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// has is the verb for streams: "definitions" are several.
func has(streams []string) string {
	if len(streams) == 1 && streams[0] != the("definitions") {
		return "has"
	}
	return "have"
}

// inWords rounds a time to what people read at a glance.
func inWords(seconds float64) string {
	units := [...]struct {
		seconds float64
		name    string
	}{{1, "s"}, {60, "min"}, {3600, "h"}, {86400, "days"}}
	unit := units[0]
	for _, u := range units {
		if seconds >= 2*u.seconds {
			unit = u
		}
	}
	return fmt.Sprintf("%.0f %s", cmp.Or(math.Floor(seconds/unit.seconds), 0), unit.name)
}
