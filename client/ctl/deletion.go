package ctl

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// deletion is what a deletion leaves or takes along, counted before it. Counting is no reason to fail: what cannot be counted
// is 0.
type deletion struct {
	kind                      *kind
	name                      string
	events, failing, silences int  // of a check or an entity
	uncounted                 bool // the events could not be counted
	ttl                       bool // the check has a TTL
	muted                     muted
	loss                      loss
	held                      []string // what a namespace holds that goes along, with its number
	along                     []string // what is deleted with each deletion of the namespace
}

// deletionOf counts what belongs to a resource.
func (s *invocation) deletionOf(ctx context.Context, k *kind, name string) deletion {
	d := deletion{kind: k, name: name}
	d.loss = s.lossOf(ctx, []*object{{kind: k, namespace: s.namespace, name: name}}, waitingIn{})
	if s.format != formatTabular {
		return d
	}
	of, options := map[string]any{"metadata": map[string]any{"namespace": s.namespace}}, client.ListOptions{}
	switch k.Type {
	case client.Checks.Type:
		of["check"], options.Check = name, name
		if def, err := client.Get(ctx, s.client, client.Checks, s.namespace, name); err == nil {
			d.ttl = def.TTL > 0
		}
	case client.Entities.Type:
		options.Subscription = resource.EntitySubscription(name)
		of["subscription"] = options.Subscription
	case client.Silences.Type:
		d.events, d.failing, d.uncounted = s.silencedBy(ctx, name)
		return d
	default:
		return d
	}
	if p, err := s.covered(ctx, of); err != nil { // a silence of the check or the entity would hit its events
		d.uncounted = true
	} else {
		d.events, d.failing = p.Events, p.Failing
	}
	if list, err := client.List(ctx, s.client, client.Silences, s.namespace, options); err == nil {
		d.silences = len(list)
	}
	return d
}

// stranded counts what stays of the checks and handlers that a prune deletes.
type stranded struct {
	events, failing, checks int
	letters                 []string // for each handler that has dead letters, their number and the command that lists them
	waits                   waitingIn
}

// add counts what stays of a resource that is not deleted yet, and returns how to undo that. It warns of the deliveries
// that wait for a handler.
func (d *stranded) add(ctx context.Context, s *invocation, o *object) (undo func()) {
	if d.waits == nil {
		d.waits = waitingIn{}
	}
	before := *d
	undo = func() { *d = before }
	at, in := *s.settings, *s
	at.namespace, in.settings = o.namespace, &at
	switch o.kind.Type {
	case client.Handlers.Type:
		lost := in.lossOf(ctx, []*object{o}, d.waits)
		lost.warn(&in)
		if lost.letters > 0 {
			d.letters = append(d.letters, lost.lettersLeft(&in, o.name))
		}
		return undo
	case client.Checks.Type:
	default:
		return undo
	}
	of := map[string]any{"metadata": map[string]any{"namespace": o.namespace}, "check": o.name}
	if p, err := in.covered(ctx, of); err == nil && p.Events > 0 { // a silence of the check would hit its events
		d.events, d.failing, d.checks = d.events+p.Events, d.failing+p.Failing, d.checks+1
	}
	return undo
}

func (d *stranded) tell(s *invocation, dryRun bool) {
	for _, text := range d.letters {
		if dryRun {
			text = "would be " + text
		}
		fmt.Fprintln(s.errOut, text)
	}
	if d.events == 0 {
		return
	}
	text := fmt.Sprintf("left behind: %s of %s", plural(d.events, "event"), plural(d.checks, "check"))
	if d.failing > 0 {
		text += fmt.Sprintf(", %d failing", d.failing)
	}
	if dryRun {
		fmt.Fprintln(s.errOut, "would be "+text)
		return
	}
	fmt.Fprintln(s.errOut, text+"; see: "+s.commandLine("orphan", "list"))
}

// covered asks which events a silence would hit. Warnings for its author are left out, since the silence is not to be made.
func (s *invocation) covered(ctx context.Context, silence any) (p client.SilencePreview, err error) {
	err = s.client.Do(client.WithWarnings(ctx, func(string) {}), http.MethodPost, s.ownPath("silenced", "preview"), silence, &p)
	return p, err
}

// silencedBy returns how many events a silence that applies now hits.
func (s *invocation) silencedBy(ctx context.Context, name string) (events, failing int, unknown bool) {
	one, err := client.Get(ctx, s.client, client.Silences, s.namespace, name)
	if err != nil {
		return 0, 0, true
	}
	p, err := s.covered(ctx, one)
	if err != nil {
		return 0, 0, true
	}
	if !p.Holds {
		return 0, 0, false
	}
	return p.Events, p.Failing, false
}

// muted are failing events whose resolution silences hold back.
type muted struct {
	events int
	by     []string // the silences
	unseen int      // other events that are silenced by silences which the user may not see
}

// held is what is known of a silence that silences a failing event.
type held struct {
	unseen bool // the user may not see it
	holds  bool // it holds resolutions back
}

// mostMuted bounds the silenced events that are looked at.
const mostMuted = 1000

// mutedOf returns which of the events that are to be resolved with a check or an entity stay silenced. Its own silences do not
// count if they are deleted along.
func (s *invocation) mutedOf(ctx context.Context, k *kind, name string, along *cascade) (m muted) {
	field, own := "event.check.name", func(silence string) bool { return strings.HasSuffix(silence, ":"+name) }
	if k.Type == client.Entities.Type {
		field = "event.entity.name"
		own = func(silence string) bool { return strings.HasPrefix(silence, resource.EntitySubscription(name)+":") }
	}
	opts := client.ListOptions{ChunkSize: defaultChunkSize, FieldSelector: fmt.Sprintf(
		`event.check.state != passing && event.is_silenced == true && %s == "%s"`, field, quotedName.Replace(name))}
	looked, holds := 0, map[string]held{}
	for ev, err := range client.All(ctx, s.client, client.Events, s.namespace, opts) {
		if looked++; err != nil || looked > mostMuted {
			break
		}
		left := slices.DeleteFunc(eventCheck(ev).Silenced, func(silence string) bool { return along.silences == "delete" && own(silence) })
		m.add(s.holding(ctx, left, holds))
	}
	return m
}

// holding returns which silences hold a resolution back, and whether there are others that the user may not see. known has
// what was looked up.
func (s *invocation) holding(ctx context.Context, silences []string, known map[string]held) (holding []string, unseen bool) {
	for _, name := range silences {
		if _, looked := known[name]; !looked {
			one, err := client.Get(ctx, s.client, client.Silences, s.namespace, name)
			known[name] = held{unseen: hidden(err), holds: err != nil || !one.PassResolve}
		}
		switch {
		case known[name].unseen:
			unseen = true
		case known[name].holds:
			holding = append(holding, name)
		}
	}
	return holding, unseen
}

// add adds an event that some silences hold back, or may hold back if the user may not see them.
func (m *muted) add(holding []string, unseen bool) {
	switch {
	case len(holding) > 0:
		m.events++
	case unseen:
		m.unseen++
	}
	for _, name := range holding {
		if !slices.Contains(m.by, name) {
			m.by = append(m.by, name)
		}
	}
}

// warn says that receivers do not hear of the resolutions. It does not name silences that the user may not see.
func (m *muted) warn(s *invocation) {
	if m.unseen > 0 {
		what := "1 event is"
		if m.unseen > 1 {
			what = fmt.Sprintf("%d events are", m.unseen)
		}
		fmt.Fprintln(s.errOut, "Warning: "+what+" silenced in a way that you may not see: receivers that were told of the incident may not get "+
			"the resolution")
	}
	if m.events == 0 {
		return
	}
	const most = 3
	by := commaSpace(m.by[:min(len(m.by), most)])
	if n := len(m.by) - most; n > 0 {
		by += fmt.Sprintf(" and %d more", n)
	}
	what := "the resolution of 1 event is"
	if m.events > 1 {
		what = fmt.Sprintf("the resolutions of %d events are", m.events)
	}
	fmt.Fprintln(s.errOut, printable("Warning: "+what+" silenced too, by "+by+": receivers that were told of the incident do not get it. "+
		"End the silence first, or let it pass resolutions (pass_resolve)"))
}

// fate returns what becomes of the events: keep, delete or resolve.
func (d *deletion) fate(along *cascade) string {
	switch {
	case along.events != "":
		return along.events
	case d.kind.Type == client.Entities.Type:
		return "delete"
	}
	return "keep"
}

// warn says before the deletion what it takes along that the flags could save.
func (d *deletion) warn(s *invocation, along *cascade) {
	d.loss.warn(s)
	d.muted.warn(s)
	if d.failing > 0 && d.fate(along) == "delete" {
		text := "%d of its events fail, and handlers get no resolution: their incidents stay open at the receivers. --events resolve closes them"
		if d.failing == 1 {
			text = "%d of its events fails, and handlers get no resolution: its incident stays open at the receivers. --events resolve closes it"
		}
		fmt.Fprintf(s.errOut, "Warning: "+text+"\n", d.failing)
	}
}

// taken says what goes along, with the flags of the deletion.
func (d *deletion) taken(along *cascade) (parts []string) {
	if fate := d.fate(along); d.events > 0 && fate != "keep" {
		text := "with its " + plural(d.events, "event")
		switch {
		case d.failing > 0 && fate == "resolve":
			text += fmt.Sprintf(", %d resolved first", d.failing)
		case d.failing > 0:
			text += fmt.Sprintf(", %d failing and not resolved", d.failing)
		}
		parts = append(parts, text)
	}
	if d.silences > 0 && along.silences == "delete" {
		parts = append(parts, "with its "+plural(d.silences, "silence"))
	}
	if all := slices.Concat(d.held, d.along); len(all) > 0 {
		parts = append(parts, "with "+commaSpace(all))
	}
	return append(parts, d.loss.taken(along.dryRun)...)
}

// tellUnsilenced says which events fail that a silence has silenced: their handlers get the next result, and fatigue_check and
// filters by occurrences may deny that for a long time.
func (d *deletion) tellUnsilenced(s *invocation, along *cascade) {
	switch {
	case d.uncounted:
		fmt.Fprintln(s.errOut, "How many of its events fail is not known.")
	case d.failing > 0 && along.dryRun:
		fmt.Fprintf(s.errOut, "%s of its %s fail now, and would be silenced no more\n", fmt.Sprint(d.failing), plural(d.events, "event"))
	case d.failing > 0:
		fmt.Fprintf(s.errOut, "%d of its %s fail: handlers get their next results, unless a filter such as fatigue_check denies repeats; see: %s\n",
			d.failing, plural(d.events, "event"), s.commandLine("event", "list", "--failing"))
	}
}

// tellLeft says which events and silences stay, and how to delete them.
func (d *deletion) tellLeft(s *invocation, along *cascade) {
	if d.loss.letters > 0 && !along.dryRun {
		fmt.Fprintln(s.errOut, d.loss.lettersLeft(s, d.name))
	}
	if d.silences > 0 && along.silences != "delete" {
		text := "left behind: " + plural(d.silences, "silence")
		if along.dryRun {
			fmt.Fprintln(s.errOut, "would be "+text+"; --silences delete takes them along")
		} else {
			of := s.commandLine("silenced", "list", "--check", d.name)
			if d.kind.Type == client.Entities.Type {
				of = s.commandLine("silenced", "list", "--subscription", resource.EntitySubscription(d.name))
			}
			fmt.Fprintln(s.errOut, printable(text+"; see: "+of))
		}
	}
	if d.kind.Type == client.Silences.Type {
		d.tellUnsilenced(s, along)
		return
	}
	if d.uncounted && d.fate(along) == "keep" {
		fmt.Fprintln(s.errOut, "How many events stay is not known.")
	}
	if d.events == 0 || d.fate(along) != "keep" {
		return
	}
	text := "left behind: " + plural(d.events, "event")
	if d.failing > 0 {
		text += fmt.Sprintf(", %d failing", d.failing)
	}
	if along.dryRun {
		fmt.Fprintln(s.errOut, "would be "+text+"; --events delete takes them along, --events resolve resolves failing ones first")
		return
	}
	if d.ttl {
		text += ". Without results they fail when the TTL of the check is over, and alert"
	}
	if d.failing > 0 {
		fmt.Fprintln(s.errOut, text+". To resolve failing ones, or to delete all:")
	} else {
		fmt.Fprintln(s.errOut, text+". To delete them:")
	}
	field := "event.check.name"
	if d.kind.Type == client.Entities.Type {
		field = "event.entity.name"
	}
	for _, act := range []string{"resolve", "delete"} {
		if act == "delete" || d.failing > 0 {
			fmt.Fprintln(s.errOut, printable("  "+s.commandLine("event", act, "--field-selector", field+" == "+selectorWord(d.name))))
		}
	}
}

const (
	mostAsked   = 50   // entities whose agents are asked for one by one
	mostLetters = 1000 // dead letters that are counted
)

// loss is what a deletion of entities or handlers does that their definitions do not show.
type loss struct {
	entities, connected      int // entities, and those whose agent is connected, so that it registers them again
	handlers                 int
	entity, handler          string // the last of them
	waiting, change, letters int    // deliveries for handlers, those of class change, and dead letters
}

// waitingIn is what waits for the handlers of namespaces, as far as the server was asked.
type waitingIn map[string][]client.Waiting

// of asks the server once for each namespace. What the server does not tell is left out.
func (w waitingIn) of(ctx context.Context, s *invocation, namespace string) []client.Waiting {
	list, asked := w[namespace]
	if !asked {
		list, _ = s.client.Waiting(ctx, namespace, "", 0)
		w[namespace] = list
	}
	return list
}

// lossOf looks at what is about to be deleted. What the server does not tell is left out.
func (s *invocation) lossOf(ctx context.Context, gone []*object, waits waitingIn) (l loss) {
	for _, o := range gone {
		switch o.kind.Type {
		case client.Entities.Type, client.EntityConfigs.Type:
			l.entity = o.name
			if l.entities++; l.entities > mostAsked {
				continue
			}
			if connected, _ := s.agentConnected(ctx, o.namespace, o.name); connected {
				l.connected++
			}
		case client.Handlers.Type:
			l.handler = o.name
			l.handlers++
			list := waits.of(ctx, s, o.namespace)
			for i := range list {
				if w := &list[i]; w.Handler == o.name {
					l.waiting += w.Memory.Total + w.Disk.Total + w.Parked.Total
					l.change += w.Memory.Change + w.Disk.Change + w.Parked.Change
				}
			}
		}
	}
	if l.handlers == 1 && len(gone) == 1 {
		for _, err := range s.client.DeadLetters(ctx, gone[0].namespace, gone[0].name, "") {
			if err != nil || l.letters == mostLetters {
				break
			}
			l.letters++
		}
	}
	return l
}

// agentConnected reports whether an entity's agent is connected to any backend. known is false if the server does not tell.
func (s *invocation) agentConnected(ctx context.Context, namespace, name string) (connected, known bool) {
	at := *s
	at.namespace = namespace
	var sub resource.Subscription
	err := s.client.Do(ctx, http.MethodGet, at.ownPath("subscriptions", resource.EntitySubscription(name)), nil, &sub)
	if err != nil {
		return false, absent(err)
	}
	return slices.Contains(sub.AgentNames, name), true
}

// warn says what is lost or does not last.
func (l *loss) warn(s *invocation) {
	if l.connected > 0 {
		who := fmt.Sprintf("the agents of %d entities are connected: they register them", l.connected)
		switch {
		case l.entities == 1:
			who = fmt.Sprintf("the agent of %s is connected: it registers the entity", l.entity)
		case l.connected == 1:
			who = "the agent of 1 entity is connected: it registers it"
		}
		fmt.Fprintln(s.errOut, printable("Warning: "+who+" again after the deletion. To remove a host for good, stop its agent first"))
	}
	if l.waiting > 0 {
		who, command := "the handlers", s.commandLine("handler", "waiting")
		if l.handlers == 1 {
			who, command = "handler "+l.handler, s.commandLine("handler", "waiting", l.handler)
		}
		wait := "deliveries wait"
		if l.waiting == 1 {
			wait = "delivery waits"
		}
		fmt.Fprintln(s.errOut, printable(fmt.Sprintf("Warning: %d %s for %s, %d of class change: the deletion drops them; see: %s",
			l.waiting, wait, who, l.change, command)))
	}
}

// taken says in the command's outcome what is lost or does not last.
func (l *loss) taken(dryRun bool) (parts []string) {
	registers, register, drops := "registers it", "register them", "dropped"
	if dryRun {
		registers, register, drops = "would register it", "would register them", "would drop"
	}
	switch {
	case l.connected > 0 && l.entities == 1:
		parts = append(parts, "its agent is connected and "+registers+" again")
	case l.connected > 0:
		parts = append(parts, fmt.Sprintf("agents of %d are connected and %s again", l.connected, register))
	}
	if l.waiting > 0 {
		deliveries := "deliveries"
		if l.waiting == 1 {
			deliveries = "delivery"
		}
		parts = append(parts, fmt.Sprintf("%s %d waiting %s, %d of class change", drops, l.waiting, deliveries, l.change))
	}
	return parts
}

// lettersLeft says how many dead letters of a handler stay.
func (l *loss) lettersLeft(s *invocation, name string) string {
	return printable("left behind: " + l.lettersText() + "; see: " + s.commandLine("deadletter", "list", "--handler", name))
}

func (l *loss) lettersText() string {
	text := plural(l.letters, "dead letter")
	if l.letters == mostLetters {
		text += " or more"
	}
	return text
}

// mostHostless bounds the subscriptions and the checks that are looked at after a deletion of entities.
const mostHostless = 20

// subscribed returns the subscriptions of a namespace by name, nil if the server does not tell.
func (s *invocation) subscribed(ctx context.Context, namespace string) map[string]resource.SubscriptionCount {
	at := *s
	at.namespace = namespace
	var list []resource.SubscriptionCount
	if err := s.client.Do(ctx, http.MethodGet, at.ownPath("subscriptions"), nil, &list); err != nil {
		return nil
	}
	out := make(map[string]resource.SubscriptionCount, len(list))
	for _, one := range list {
		out[one.Name] = one
	}
	return out
}

// tellHostless warns of published checks that a deletion of entities has left without one that could run them: they will be
// late. before is what subscribed returned before the deletion.
func (s *invocation) tellHostless(ctx context.Context, namespace string, before map[string]resource.SubscriptionCount) {
	now := s.subscribed(ctx, namespace)
	if before == nil || now == nil {
		return
	}
	at := *s
	at.namespace = namespace
	empty := func(name string) bool { return now[name].Entities+now[name].Agents == 0 }
	seen := map[string]bool{}
	var found []string
	asked := 0
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if old := before[name]; old.Checks == 0 || old.Entities+old.Agents == 0 || !empty(name) {
			continue
		}
		var sub resource.Subscription
		if asked++; asked > mostHostless ||
			s.client.Do(ctx, http.MethodGet, at.ownPath("subscriptions", name), nil, &sub) != nil {
			break
		}
		for _, check := range sub.CheckNames {
			if seen[check] || len(seen) == mostHostless {
				continue
			}
			seen[check] = true
			def, err := client.Get(ctx, s.client, client.Checks, namespace, check)
			if err == nil && def.Publish && !slices.ContainsFunc(def.Subscriptions, func(n string) bool { return !empty(n) }) {
				found = append(found, check)
			}
		}
	}
	if len(found) == 0 {
		return
	}
	what, they, them := "check "+found[0], "it", "it"
	if len(found) > 1 {
		what, they, them = "checks "+strings.Join(found, ", "), "they", "them"
	}
	text := fmt.Sprintf("Warning: no host is left for %s: %s will be late, and lapwing reports that. "+
		"Delete %s, or give another agent the subscription; see: %s", what, they, them, at.commandLine("check", "targets", found[0]))
	fmt.Fprintln(s.errOut, printable(text))
}
