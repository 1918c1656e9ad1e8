package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// This file has the questions between members that users' requests lead to. The member that a user asks checks the
// user's rights; the others trust it, and get nothing about the user.

// Names of the questions.
const (
	questionExecute       = "execute"
	questionDrain         = "drain"
	questionLogLevel      = "log-level"
	questionTrace         = "trace"
	questionTraces        = "traces"
	questionNotifications = "notifications"
	questionServers       = "servers"
	questionAgents        = "agents"
	questionQueue         = "queue"
	questionWaiting       = "waiting"
	questionRetry         = "retry"
	questionPostgres      = "postgres"
	// questionPresence asks a member for all its agents, see queue.Presence.
	questionPresence = "presence"
)

// askVersion is the newest version of questions. A member refuses newer ones.
const askVersion = 1

// question is a question to a member, as the bus carries it.
type question struct {
	Version int             `json:"version"`
	Body    json.RawMessage `json:"body"`
}

// askedTimeout bounds a question that a user waits for.
const askedTimeout = 2 * time.Second

// goneLong is how long a member must be away until requests do without it in silence: its agents are at others by then.
const goneLong = time.Minute

func encodeQuestion(body any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	return json.Marshal(question{askVersion, raw})
}

// ask asks a member, and decodes its answer.
func ask[A any](ctx context.Context, m *membership, id, name string, body any) (*A, error) {
	text, err := encodeQuestion(body)
	if err != nil {
		return nil, err
	}
	raw, err := m.Ask(ctx, id, name, text)
	if err != nil {
		return nil, err
	}
	return decodeAnswer[A](raw)
}

func decodeAnswer[A any](raw []byte) (*A, error) {
	answer := new(A)
	if err := json.Unmarshal(raw, answer); err != nil {
		return nil, fmt.Errorf("read answer of a member: %w", err)
	}
	return answer, nil
}

// answered is the answer of another member.
type answered[A any] struct {
	id     string
	member *cluster.Member
	name   string
	answer *A // nil if there is an error
	err    error
}

// askAll asks all other members at the same time.
func askAll[A any](ctx context.Context, m *membership, name string, body any) ([]answered[A], error) {
	text, err := encodeQuestion(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askedTimeout)
	defer cancel()
	members := m.Others()
	var all []answered[A]
	for _, raw := range m.AskAll(ctx, name, text) {
		one := answered[A]{id: raw.Member, name: m.NameOf(raw.Member), err: raw.Err}
		if i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.ID == raw.Member }); i >= 0 {
			one.member = &members[i]
		}
		if one.err == nil {
			one.answer, one.err = decodeAnswer[A](raw.Body)
		}
		all = append(all, one)
	}
	return all, nil
}

// answersOf returns the answers, and the names of the members that did not answer. It leaves out those that are gone for
// long: what they had is at others by then.
func answersOf[A any](all []answered[A]) (answers []*A, missing []string) {
	for _, one := range all {
		switch {
		case one.err == nil:
			answers = append(answers, one.answer)
		case one.member == nil || one.member.Silent < goneLong:
			missing = append(missing, one.name)
		}
	}
	return answers, missing
}

// whyNot says that the member did not answer, and why.
func (a *answered[A]) whyNot() string {
	switch {
	case errors.Is(a.err, cluster.ErrAway):
		return a.name + " is away"
	case errors.Is(a.err, context.DeadlineExceeded), errors.Is(a.err, broker.ErrNoListener):
		return a.name + " did not answer"
	}
	return a.name + ": " + a.err.Error()
}

// handle has this member answer a question.
func handle[Q, A any](m *membership, name string, f func(ctx context.Context, q *Q) (A, error)) error {
	return m.Handle(name, answering(f))
}

// answering returns a handler of questions of up to askVersion.
func answering[Q, A any](f func(ctx context.Context, q *Q) (A, error)) cluster.Handler {
	return func(ctx context.Context, body []byte) ([]byte, error) {
		var asked question
		if err := json.Unmarshal(body, &asked); err != nil {
			return nil, fmt.Errorf("read question: %w", err)
		}
		if asked.Version > askVersion {
			return nil, fmt.Errorf("the question has version %d, and this member knows version %d: upgrade it",
				asked.Version, askVersion)
		}
		q := new(Q)
		if err := json.Unmarshal(asked.Body, q); err != nil {
			return nil, fmt.Errorf("read question: %w", err)
		}
		answer, err := f(ctx, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	}
}

// answer has this member answer the others. All parts must run.
func (v *clusterView) answer() error {
	return errors.Join(
		v.members.Handle(questionPresence, func(context.Context, []byte) ([]byte, error) { return v.parts.queue.Copy(), nil }),
		handle(v.members, questionQueue, v.queueHere),
		handle(v.members, questionWaiting, v.waitingHere),
		handle(v.members, questionRetry, v.retryHere),
		handle(v.members, questionExecute, func(_ context.Context, q *executeQuestion) (executeAnswer, error) {
			return v.executeHere(q), nil
		}),
		handle(v.members, questionDrain, v.drainHere),
		handle(v.members, questionLogLevel, v.logLevelHere),
		handle(v.members, questionTrace, v.traceHere),
		handle(v.members, questionTraces, v.newestAnswer),
		handle(v.members, questionNotifications, v.notificationsHere),
		handle(v.members, questionServers, v.serversHere),
		handle(v.members, questionForget, v.forgetHere),
		handle(v.members, questionPostgres, v.postgresHere),
		handle(v.members, questionAgents, func(_ context.Context, q *agentsQuestion) (agentsAnswer, error) {
			return v.parts.agentsHere(q), nil
		}),
	)
}

// serversHere answers how the broker counts the members. Only its leader is asked.
func (v *clusterView) serversHere(context.Context, *struct{}) (servers, error) {
	meta := v.broker.MetaStatus()
	if meta.Leader != v.broker.Name() {
		return servers{}, errors.New("the broker's leader has changed")
	}
	return servers{meta.Leader, meta.Replicas}, nil
}

// executeQuestion asks a member to have its agents run a check.
type executeQuestion struct {
	Check         *resource.CheckConfig `json:"check"`
	Subscriptions []string              `json:"subscriptions"`
	Issued        int64                 `json:"issued"`
	// All asks for all agents, also if the check is round robin.
	All bool `json:"all,omitempty"`
}

type executeAnswer struct {
	// WithoutAgent are the subscriptions that no agent of the member has.
	WithoutAgent []string `json:"without_agent"`
}

func (v *clusterView) executeHere(q *executeQuestion) executeAnswer {
	without := v.parts.sessions.WithoutAgent(q.Check.Metadata.Namespace, q.Subscriptions)
	v.parts.scheduler.Execute(q.Check, q.Subscriptions, q.Issued, q.All)
	return executeAnswer{without}
}

// Execute has agents run a check: of a round-robin check one of each subscription, unless all is set, and else the agents
// of all members.
func (v *clusterView) Execute(ctx context.Context, check *resource.CheckConfig, subscriptions []string, all bool) api.Execution {
	q := &executeQuestion{check, subscriptions, time.Now().Unix(), all}
	done := api.Execution{Issued: q.Issued, WithoutAgent: v.executeHere(q).WithoutAgent}
	asked, err := askAll[executeAnswer](ctx, v.members, questionExecute, q)
	if err != nil {
		v.log.Error("the other members were not asked to execute a check", "check", check.Metadata.Name, "err", err)
		return done
	}
	answers, missing := answersOf(asked)
	for _, a := range answers {
		done.WithoutAgent = slices.DeleteFunc(done.WithoutAgent, func(s string) bool { return !slices.Contains(a.WithoutAgent, s) })
	}
	done.Silent = missing
	return done
}

// drainQuestion asks a member to do something with its drain.
type drainQuestion struct {
	Action      api.DrainAction `json:"action"`
	OverSeconds int64           `json:"over_seconds"`
}

func (v *clusterView) drainHere(_ context.Context, q *drainQuestion) (resource.Drain, error) {
	return api.ActOnDrain(v.parts.sessions, q.Action, time.Duration(q.OverSeconds)*time.Second), nil
}

// Drain implements api.ClusterView.
func (v *clusterView) Drain(ctx context.Context, member string, action api.DrainAction, over time.Duration) (
	resource.Drain, error,
) {
	q := drainQuestion{action, int64(over / time.Second)}
	return onMember(ctx, v, member, questionDrain, q, func() resource.Drain { return api.ActOnDrain(v.parts.sessions, action, over) })
}

// onMember has the member that a user names, by its name or id, answer a question: this one with here, others over the bus.
func onMember[A any](ctx context.Context, v *clusterView, member, question string, body any, here func() A) (none A, err error) {
	var others []string
	for _, m := range v.members.Members() {
		name := v.members.NameOf(m.ID)
		if m.Self {
			name = v.name
		}
		if others = append(others, name); member != name && member != m.ID {
			continue
		}
		if m.Self {
			return here(), nil
		}
		if !m.Heard {
			return none, fmt.Errorf("%w: %s has not been heard for %.0f s", api.ErrMemberSilent, name, m.Silent.Seconds())
		}
		ctx, cancel := context.WithTimeout(ctx, askedTimeout)
		defer cancel()
		answer, err := ask[A](ctx, v.members, m.ID, question, body)
		if err != nil {
			return none, fmt.Errorf("%w: %w", api.ErrMemberSilent, err)
		}
		return *answer, nil
	}
	return none, api.NoMember(member, others)
}

// logLevelAnswer has what a member logs, or what is wrong with the question.
type logLevelAnswer struct {
	Levels resource.LogLevels `json:"levels"`
	Wrong  string             `json:"wrong,omitempty"`
}

func (v *clusterView) logLevelHere(_ context.Context, do *api.LogLevelAction) (answer logLevelAnswer, err error) {
	if v.backend.opts.LogLevels == nil {
		return logLevelAnswer{Wrong: "the levels of this backend cannot be changed"}, nil
	}
	if answer.Levels, err = api.ActOnLogLevels(v.backend.opts.LogLevels, *do); err != nil {
		answer.Wrong = err.Error()
	}
	return answer, nil
}

// LogLevel does an action with the log levels of a member; "" is this one.
func (v *clusterView) LogLevel(ctx context.Context, member string, do api.LogLevelAction) (resource.LogLevels, error) {
	here := func() logLevelAnswer {
		answer, _ := v.logLevelHere(ctx, &do) // its errors are in the answer
		return answer
	}
	answer := logLevelAnswer{}
	if member == "" {
		answer = here()
	} else {
		var err error
		if answer, err = onMember(ctx, v, member, questionLogLevel, do, here); err != nil {
			return resource.LogLevels{}, err
		}
	}
	if answer.Wrong != "" {
		return resource.LogLevels{}, &api.LogLevelError{Text: answer.Wrong}
	}
	return answer.Levels, nil
}

type traceAnswer struct {
	Events []trace.Outcome `json:"events"`
	// Cut says that older events were left out because the answer would be too large.
	Cut bool `json:"cut,omitempty"`
}

// maxTraces bounds an answer with traces, in bytes. The bus takes 8 MiB.
const maxTraces = 4 << 20

func (v *clusterView) traceHere(_ context.Context, q *trace.Query) (traceAnswer, error) {
	events, err := v.tracesHere(q)
	if err != nil {
		return traceAnswer{}, err
	}
	return fitTraces(events, maxTraces)
}

// tracesHere returns what this member knows of a check's events: the traces, and the deliveries that wait for their turn.
func (v *clusterView) tracesHere(q *trace.Query) ([]trace.Outcome, error) {
	waiting := v.queued(q)
	events, err := v.parts.traces.Of(*q)
	if err != nil {
		return nil, err
	}
	return withQueued(q, waiting, events), nil
}

// queued returns the deliveries that wait for their turn here. Ask for them before the traces: a delivery that has its turn in
// between is in both then, and in the other order in neither.
func (v *clusterView) queued(q *trace.Query) []trace.Delivery {
	return v.parts.handlers.Queued(q.Namespace, q.Entity, q.Check, maxQueued)
}

// withQueued adds to traces the deliveries that waited for their turn before. Of a delivery that is in both the trace counts: it
// is later, or comes later in Join.
func withQueued(q *trace.Query, waiting []trace.Delivery, events []trace.Outcome) []trace.Outcome {
	if len(waiting) == 0 {
		return events
	}
	return q.Join([]trace.Outcome{{Deliveries: waiting}}, events)
}

// maxQueued bounds the deliveries of a handler that wait for their turn, in a trace.
const maxQueued = 100

// newestAnswer is newestHere for another member: it leaves out the oldest events where there would be too many for an answer.
func (v *clusterView) newestAnswer(_ context.Context, list *[]trace.Query) ([]trace.Newest, error) {
	answers, err := v.newestHere(*list)
	if err != nil {
		return nil, err
	}
	for i := range answers {
		fit, err := fitTraces(answers[i].Outcomes, maxTraces/len(answers))
		if err != nil {
			return nil, err
		}
		answers[i].Outcomes, answers[i].Cut = fit.Events, answers[i].Cut || fit.Cut
	}
	return answers, nil
}

// newestHere returns what this member knows of the newest events of each of some checks.
func (v *clusterView) newestHere(list []trace.Query) ([]trace.Newest, error) {
	answers := make([]trace.Newest, len(list))
	for i := range list {
		waiting := v.queued(&list[i])
		found, err := v.parts.traces.Newest(list[i])
		if err != nil {
			return nil, err
		}
		found.Outcomes = withQueued(&list[i], waiting, found.Outcomes)
		answers[i] = found
	}
	return answers, nil
}

// Newest implements api.Traces. It asks each member once.
func (v *clusterView) Newest(ctx context.Context, list []trace.Query) ([]trace.Newest, []string, error) {
	found, err := v.newestHere(list)
	if err != nil {
		return nil, nil, err
	}
	all, err := askAll[[]trace.Newest](ctx, v.members, questionTraces, list)
	if err != nil {
		return nil, nil, err
	}
	var missing []string
	for _, one := range all {
		switch {
		case one.err != nil:
			missing = append(missing, one.whyNot())
			continue
		case len(*one.answer) != len(list):
			missing = append(missing, one.name+" did not answer for each event")
			continue
		}
		for i, more := range *one.answer {
			found[i].Outcomes = list[i].Join(found[i].Outcomes, more.Outcomes)
			found[i].Cut = found[i].Cut || more.Cut
		}
	}
	return found, missing, nil
}

// fitTraces leaves out the oldest events of an answer that would be larger than most, in bytes.
func fitTraces(events []trace.Outcome, most int) (traceAnswer, error) {
	size := 0
	for i := range events {
		one, err := json.Marshal(&events[i])
		if err != nil {
			return traceAnswer{}, fmt.Errorf("encode trace: %w", err)
		}
		if size += len(one) + 1; size > most {
			return traceAnswer{events[:i], true}, nil
		}
	}
	return traceAnswer{Events: events}, nil
}

// Of implements api.Traces. Each member keeps the traces of what it has routed and sent.
func (v *clusterView) Of(ctx context.Context, q trace.Query) ([]trace.Outcome, []string, error) {
	own, err := v.tracesHere(&q)
	if err != nil {
		return nil, nil, err
	}
	all, err := askAll[traceAnswer](ctx, v.members, questionTrace, q)
	if err != nil {
		return nil, nil, err
	}
	lists, missing := [][]trace.Outcome{own}, []string(nil)
	for _, one := range all {
		if one.err != nil {
			missing = append(missing, one.whyNot())
			continue
		}
		if lists = append(lists, one.answer.Events); one.answer.Cut {
			missing = append(missing, one.name+" has more than fits into an answer: ask for fewer")
		}
	}
	if len(lists) == 1 {
		return own, missing, nil
	}
	return q.Join(lists...), missing, nil
}
