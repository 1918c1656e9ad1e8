package queue

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Turn is one run that a group owes.
type Turn struct {
	// Tick is when the check was due, or was asked for, in Unix seconds.
	Tick int64
	// Entity is the proxy entity that the check is run for; "" if it is run for the agent's own.
	Entity string
	// Asked says that a user asked for the run: it is no tick of the schedule.
	Asked bool
}

func (t Turn) compare(o Turn) int {
	switch {
	case t.Asked != o.Asked && t.Asked:
		return 1
	case t.Asked != o.Asked:
		return -1
	case t.Tick != o.Tick:
		return cmp.Compare(t.Tick, o.Tick)
	}
	return strings.Compare(t.Entity, o.Entity)
}

// Format is the value of resource.TurnAnnotation for a turn of the groups of some subscriptions: an agent that has the turn
// of several groups at the same time gets one request. The check's proxy entity, which is in each request and result, is not
// in it. The last part is the stamp of the giving, see stamp: by the results in the log each member knows which agent had
// the newest turn.
func (t Turn) Format(stamp uint64, subscriptions ...string) string {
	b := strconv.AppendInt(make([]byte, 0, 48), t.Tick, 10)
	if t.Asked {
		b = append(b, '!')
	}
	for i, s := range subscriptions {
		b = append(b, " ,"[min(i, 1)])
		if strings.ContainsAny(s, "%,") {
			s = escape.Replace(s)
		}
		b = append(b, s...)
	}
	return string(strconv.AppendUint(append(b, ' '), stamp, 10))
}

// Commas separate subscriptions, and may be in their names.
var (
	escape   = strings.NewReplacer("%", "%25", ",", "%2C")
	unescape = strings.NewReplacer("%25", "%", "%2C", ",")
)

// maxTurnText bounds the value of an annotation, in bytes. Agents send it, so they could send anything.
const maxTurnText = 256 << 10

// given is what a turn's annotation says: which turn of which groups, each once, was given when.
type given struct {
	Turn
	stamp         uint64
	subscriptions []string
}

// parseTurn reads the value of resource.TurnAnnotation.
func parseTurn(text, entity string) (g given, ok bool) {
	tick, rest, ok := strings.Cut(text, " ")
	end := strings.LastIndexByte(rest, ' ')
	if !ok || end < 0 || len(text) > maxTurnText {
		return given{}, false
	}
	tick, asked := strings.CutSuffix(tick, "!")
	at, err := strconv.ParseInt(tick, 10, 64)
	if err != nil || at < 0 {
		return given{}, false
	}
	g = given{Turn: Turn{Tick: at, Entity: entity, Asked: asked}, subscriptions: strings.Split(rest[:end], ",")}
	if g.stamp, err = strconv.ParseUint(rest[end+1:], 10, 64); err != nil {
		return given{}, false
	}
	if strings.Contains(text, "%") {
		for i, s := range g.subscriptions {
			g.subscriptions[i] = unescape.Replace(s)
		}
	}
	if len(g.subscriptions) > 1 {
		slices.Sort(g.subscriptions)
		g.subscriptions = slices.Compact(g.subscriptions)
	}
	return g, true
}

// ParseTurn returns the turn in the value of resource.TurnAnnotation, the subscriptions of its groups, and when it was
// given.
func ParseTurn(text, entity string) (t Turn, subscriptions []string, given time.Time, ok bool) {
	g, ok := parseTurn(text, entity)
	return g.Turn, g.subscriptions, time.UnixMicro(int64(min(g.stamp, math.MaxInt64))), ok
}

// limits are how long a turn waits.
type limits struct {
	// answer is how long an agent may be silent before the turn goes to the next one.
	answer time.Duration
	// deadline is how long after its tick a turn is given to agents. What is late by more is not much better than missed.
	deadline time.Duration
	// run is how long an agent that says that it runs the check may take.
	run time.Duration
}

// Deadline is how long after its tick a turn is given to agents, for a check whose ticks are so far apart.
func Deadline(every time.Duration) time.Duration { return min(max(every, leastDeadline), mostDeadline) }

const (
	leastAnswer   = 5 * time.Second
	leastDeadline = 10 * time.Second
	mostDeadline  = 5 * time.Minute
)

// limitsOf returns the limits of a check whose ticks are so far apart. longest is how long its runs have taken lately, 0
// if that is not known: then an agent may take half of the time that there is. A stock agent does not say that it runs a
// check, so there is time for two runs: if one of them is not waited for, each turn is run twice.
func limitsOf(c *resource.CheckConfig, longest, every time.Duration) limits {
	l := limits{deadline: Deadline(every), run: mostDeadline}
	switch timeout := time.Duration(c.Timeout) * time.Second; {
	case timeout > 0:
		l.answer = timeout + leastAnswer
		l.run = timeout + leastAnswer
	case longest > 0:
		l.answer = max(3*longest, leastAnswer)
	default:
		l.answer = l.deadline / 2
	}
	l.deadline = min(max(l.deadline, 2*l.answer), mostDeadline)
	l.answer = min(l.answer, l.deadline/2)
	return l
}
