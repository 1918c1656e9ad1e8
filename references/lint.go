package references

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Beyond is what Lint asks its caller, since definitions do not tell it.
type Beyond struct {
	// Rules returns what is doubtful about the rules of a role, or "".
	Rules func([]resource.Rule) string
	// Reported returns the names of the checks that have events in a namespace: some are defined only on hosts.
	Reported func(namespace string) map[string]bool
}

// Lint returns what is doubtful about the definitions of a namespace, and about those that belong to none; of all for "".
// That includes what definitions ask for and lapwing does not do (resource.UnsupportedIn), and Doubts. Warnings come before notes,
// and within them kinds in their order. What cannot be known here, such as the handlers that agents' own events name, is at
// most a note.
func Lint(sn *config.Snapshot, namespace string, beyond Beyond) []resource.LintFinding {
	l := &linting{sn: sn, namespace: namespace, beyond: beyond, used: map[Reference]map[string]bool{},
		finder: newFinder(sn), reported: map[string]map[string]bool{}}
	for _, k := range resource.Kinds {
		if unlisted(k) {
			continue
		}
		within := namespace
		if !k.Namespaced {
			within = ""
		}
		for obj := range config.ListAny(sn, k, within) {
			l.kind = k
			l.definition(obj)
		}
	}
	for _, k := range resource.Kinds {
		switch l.kind = k; k.Type {
		case "Handler":
			l.unfiltered()
		case "CheckConfig":
			l.deserted()
		}
		if namedByOthers[k.Type] {
			for obj := range config.ListAny(sn, k, namespace) {
				l.kind = k
				l.unused(obj)
			}
		}
	}
	slices.SortStableFunc(l.found, func(a, b resource.LintFinding) int {
		return strings.Compare(b.Severity, a.Severity) // warning before note
	})
	return l.found
}

// Linted reports whether Lint may find something about definitions of a kind of a namespace.
func Linted(k *resource.Kind) bool { return k.Namespaced && !unlisted(k) && k.Type != "Event" }

// namedByOthers are the kinds that do nothing unless another definition names them.
var namedByOthers = map[string]bool{
	"Handler": true, "EventFilter": true, "Mutator": true, "Asset": true, "HookConfig": true, "Pipeline": true,
	"FallbackPipeline": true, "Calendar": true, "Contact": true, "Rota": true, "Role": true,
}

type linting struct {
	finder    *finder
	sn        *config.Snapshot
	namespace string
	beyond    Beyond
	kind      *resource.Kind
	found     []resource.LintFinding
	reported  map[string]map[string]bool    // what beyond.Reported returned, by namespace, as far as it was needed
	used      map[Reference]map[string]bool // what is named, in which namespaces
}

// The severities of findings.
const (
	warning = "warning"
	note    = "note"
)

func (l *linting) add(obj any, severity, text, hint string) {
	l.addAbout("", obj, severity, text, hint)
}

// addAbout adds a finding that tells about names of another resource.
func (l *linting) addAbout(names string, obj any, severity, text, hint string) {
	namespace, name := keyOf(l.kind, obj)
	l.found = append(l.found, resource.LintFinding{
		Severity: severity, Kind: l.kind.Command, Resource: l.kind.Role, Namespace: namespace, Name: name, Text: text, Hint: hint,
		Names: names,
	})
}

// definition looks at one definition.
func (l *linting) definition(obj any) {
	namespace, uses := usesOf(obj)
	for _, u := range uses {
		r := referenceTo(u)
		if l.used[r] == nil {
			l.used[r] = map[string]bool{}
		}
		l.used[r][namespace] = true
	}
	for _, m := range l.finder.find(obj) {
		hint := "lapwing " + strings.ReplaceAll(m.What, " ", "-") + " list"
		switch m.What {
		case subscription:
			hint = ""
		case group:
			hint = "lapwing role-binding list --all-namespaces"
		}
		text := m.String()
		switch obj.(type) {
		case *resource.Calendar:
			text += ", so this calendar is ignored wherever it is named"
		case *resource.EventFilter:
			if m.What == calendars.Word() {
				text += ", so in_calendar is false"
			}
		}
		l.addAbout(m.Resource, obj, warning, text, hint)
	}
	_, name := keyOf(l.kind, obj)
	for _, u := range resource.UnsupportedIn(obj) {
		l.add(obj, warning, u.String(), "lapwing edit "+l.kind.Command+" "+name)
	}
	for _, text := range Doubts(obj) {
		hint := "lapwing edit " + l.kind.Command + " " + name
		if text == noSubscription {
			hint = "lapwing check set-subscriptions " + name + " …"
		}
		l.add(obj, warning, text, hint)
	}
	for _, text := range l.finder.unknownLabels(obj) {
		l.addAbout(config.Entities.String(), obj, warning, text, "lapwing edit "+l.kind.Command+" "+name)
	}
	for _, text := range Uncontacted(l.sn, obj) {
		l.addAbout(config.Handlers.String(), obj, warning, text, "lapwing edit "+l.kind.Command+" "+name)
	}
	switch o := obj.(type) {
	case *resource.CheckConfig:
		l.check(o)
	case *resource.Handler:
		if o.Type == "set" && len(o.Handlers) == 0 {
			l.add(o, warning, "the set is empty, so it does nothing", "lapwing edit handler "+o.Metadata.Name)
		}
	case *resource.Pipeline:
		if len(o.Workflows) == 0 {
			l.add(o, warning, "it has no workflow, so it does nothing", "lapwing edit pipeline "+o.Metadata.Name)
		}
		for _, w := range o.Workflows {
			if w.Handler == nil || w.Handler.Name == "" {
				l.add(o, warning, "workflow "+w.Name+" has no handler, so it can never fire", "lapwing edit pipeline "+o.Metadata.Name)
			}
		}
	case *resource.Role:
		l.rules(o, o.Rules)
	case *resource.ClusterRole:
		l.rules(o, o.Rules)
	case *resource.RoleBinding:
		l.groups(o, o.Subjects)
	case *resource.ClusterRoleBinding:
		l.groups(o, o.Subjects)
	case *resource.Silenced:
		l.silencedCheck(o)
		if o.ExpireAt == 0 && !o.ExpireOnResolve {
			name := "'" + o.Metadata.Name + "'" // most have a * that shells would expand
			l.add(o, warning, "it has no end", "lapwing silenced update "+name+", or lapwing silenced delete "+name)
		}
		if name, ok := strings.CutPrefix(o.Subscription, resource.EntitySubscription("")); ok {
			if _, ok := config.Get(l.sn, config.Entities, o.Metadata.Namespace, name); !ok {
				l.addAbout(config.Entities.String(), o, note, "the entity "+name+" does not exist", "lapwing silenced purge --dry-run")
			}
		}
	}
}

// silencedCheck notes that there is no check that a silence names.
func (l *linting) silencedCheck(s *resource.Silenced) {
	namespace, name := s.Metadata.Namespace, s.Check
	if name == "" || name == "*" {
		return
	}
	if _, defined := config.Get(l.sn, config.Checks, namespace, name); defined {
		return
	}
	reported, known := l.reported[namespace]
	if !known {
		reported = l.beyond.Reported(namespace)
		l.reported[namespace] = reported
	}
	if reported[name] {
		return
	}
	text := "the check " + name + " does not exist, and no event is of it"
	checks := names(in{l.sn, namespace}, config.Checks, func(c *resource.CheckConfig) string { return c.Metadata.Name })
	if near := optionerr.Nearest(name, checks); near != "" {
		text += " (" + near + "?)"
	}
	l.addAbout(config.Checks.String(), s, note, text, "lapwing check list")
}

// groups notes groups of a binding that no user has. With a sign-in provider, they may come from there.
func (l *linting) groups(binding any, subjects []resource.Subject) {
	if config.Len(l.sn, config.AuthProviders) > 0 {
		return
	}
	for _, s := range subjects {
		if s.Type != "Group" || strings.HasPrefix(s.Name, "system:") {
			continue
		}
		known := map[string]bool{}
		for u := range config.List(l.sn, config.Users, "") {
			for _, group := range u.Groups {
				known[group] = true
			}
		}
		if known[s.Name] {
			continue
		}
		text := "no user has the group " + s.Name
		if near := optionerr.Nearest(s.Name, slices.Sorted(maps.Keys(known))); near != "" {
			text += " (" + near + "?)"
		}
		l.addAbout(config.Users.String(), binding, note, text, "lapwing user list")
	}
}

func (l *linting) rules(role any, rules []resource.Rule) {
	if text := l.beyond.Rules(rules); text != "" {
		_, name := keyOf(l.kind, role)
		l.add(role, warning, text, "lapwing edit "+l.kind.Command+" "+name)
	}
}

func (l *linting) check(c *resource.CheckConfig) {
	edit := "lapwing edit check " + c.Metadata.Name
	switch {
	case len(c.Subscriptions) == 0 && !scheduled(c): // otherwise Doubts says it
		l.add(c, warning, noSubscription, "lapwing check set-subscriptions "+c.Metadata.Name+" …")
	case !c.Publish && unpublished(c):
		l.add(c, warning, "its file has no publish: true, so it runs only when it is asked to", edit)
	case !c.Publish:
		l.add(c, note, "publish is false, so it runs only when it is asked to", edit)
	case c.Interval == 0 && c.Cron == "":
		l.add(c, warning, "it has neither an interval nor a cron, so it never runs by itself", edit)
	}
	named := len(c.Handlers) + len(c.Pipelines) + len(c.OutputMetricHandlers)
	if named == 0 && c.FallbackPipeline == nil && c.OutputMetricFormat == "" {
		l.add(c, note, "it names no handler and no pipeline, so its incidents notify no one", edit)
	}
}

// unpublished reports whether a check's file does not say that it is published, nor that it is not, as far as the record
// of "lapwing apply" tells.
func unpublished(c *resource.CheckConfig) bool {
	record, applied := c.Metadata.Annotations[resource.LastAppliedAnnotation]
	if !applied || c.Interval == 0 && c.Cron == "" {
		return false
	}
	var file map[string]any
	err := json.Unmarshal([]byte(record), &file)
	_, said := file["publish"]
	return err == nil && !said
}

// deserted warns of checks in namespaces in which no entity has a subscription: once for each namespace, since it is so for all
// its checks.
func (l *linting) deserted() {
	var first []*resource.CheckConfig
	more := map[string]int{}
	for c := range config.List(l.sn, config.Checks, l.namespace) {
		namespace := c.Metadata.Namespace
		if len(c.Subscriptions) == 0 || !l.finder.deserted(namespace) {
			continue
		}
		if _, counted := more[namespace]; counted {
			more[namespace]++
			continue
		}
		more[namespace] = 0
		first = append(first, c)
	}
	for _, c := range first {
		who := "it"
		if n := more[c.Metadata.Namespace]; n == 1 {
			who = "it and 1 more check of this namespace"
		} else if n > 1 {
			who = fmt.Sprintf("it and %d more checks of this namespace", n)
		}
		l.addAbout(config.Entities.String(), c, warning, fmt.Sprintf("subscription %q: the namespace has no entity with a subscription, so no agent runs %s",
			c.Subscriptions[0], who), "lapwing entity list")
	}
}

// unfiltered notes handlers that get each result of a check.
func (l *linting) unfiltered() {
	noted := map[*resource.Handler]bool{}
	for c := range config.List(l.sn, config.Checks, l.namespace) {
		for _, name := range c.Handlers {
			h, ok := config.Get(l.sn, config.Handlers, c.Metadata.Namespace, name)
			if !ok || !h.WantsFilter() || noted[h] {
				continue
			}
			noted[h] = true
			l.add(h, note, "it has no filters, so it gets each result of check "+c.Metadata.Name+", also OK ones",
				"lapwing handler update "+name+" --filters is_incident")
		}
	}
}

// unused notes a definition that no other one names.
func (l *linting) unused(obj any) {
	namespace, name := l.kind.Key(obj)
	ref := Reference{l.kind.Word(), l.kind.Role, name}
	if l.used[ref][namespace] {
		return
	}
	text := "no definition names it"
	switch obj.(type) {
	case *resource.Handler, *resource.Pipeline, *resource.FallbackPipeline:
		text += "; events from agents may"
	case *resource.EventFilter, *resource.Mutator:
		// only handlers and pipelines name them
	case *resource.Role:
		text = "no role binding names it"
	}
	l.add(obj, note, text, "")
}
