package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// did says in one line what a command did to one thing, for example "Created" or "Removed handlers of". The first word is
// sensuctl's, which scripts may look for; in the formats for programs it is alone.
func (s *invocation) did(word string, k *kind, name string, more ...string) {
	if s.format != formatTabular {
		word, _, _ = strings.Cut(word, " ")
		fmt.Fprintln(s.out, word)
		return
	}
	line := word
	if !k.Singleton {
		line += " " + k.Plural + "/" + name
	}
	if k.Namespaced {
		line += " in namespace " + s.namespace
	}
	for _, one := range more {
		line += after("; ", one)
	}
	fmt.Fprintln(s.out, printable(line))
}

// undo names the command that takes an act back.
func (s *invocation) undo(words ...string) string { return "undo: " + s.commandLine(words...) }

// commandLine returns a command to copy. It names the namespace unless that is the profile's.
func (s *settings) commandLine(words ...string) string {
	line := "lapwing"
	for _, word := range words {
		line += " " + shellWord(word)
	}
	if s.namespace != cmp.Or(s.files.profile.Namespace, "default") {
		line += " --namespace " + shellWord(s.namespace)
	}
	return line
}

// shellWord quotes a word that a shell would change.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// noItems says that a list of something that is no resource is empty, and where else to look. role is the resource that its
// readers need a right to.
func (s *invocation) noItems(ctx context.Context, role, what, command, namespace string, selected bool) {
	if hidden := s.maybeHidden(ctx, what, role, namespace, selected); hidden != "" {
		fmt.Fprintln(s.errOut, hidden)
		return
	}
	text := "no " + what
	if selected {
		text += " match"
	}
	s.tellWhere(text, command, namespace)
}

// tellWhere says a text with the namespace it is of, "" for all, and how to see those of all namespaces.
func (s *invocation) tellWhere(text, command, namespace string) {
	if namespace == "" {
		text += " in any namespace"
	} else {
		text += fmt.Sprintf(" in namespace %s; see also: lapwing %s --all-namespaces", namespace, command)
	}
	fmt.Fprintln(s.errOut, text)
}

// tally counts what a command did to many things, in the order in which the words first come.
type tally struct {
	words  []string
	counts map[string]int
}

func (t *tally) add(word string) {
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	if t.counts[word] == 0 {
		t.words = append(t.words, word)
	}
	t.counts[word]++
}

// String returns for example "created 2, updated 1, unchanged 5".
func (t *tally) String() string {
	var parts []string
	for _, word := range t.words {
		parts = append(parts, fmt.Sprint(word, " ", t.counts[word]))
	}
	return commaSpace(parts)
}

// didMany prints the counts, for people.
func (s *invocation) didMany(t *tally) {
	if s.format == formatTabular && len(t.words) > 0 {
		fmt.Fprintln(s.out, t)
	}
}

// didSilence says what was done to a silence, and how many events it hits.
func (s *invocation) didSilence(ctx context.Context, word string, k *kind, body any, undo bool) {
	data, err := json.Marshal(body)
	if err != nil {
		return // it was encoded before, for the request
	}
	one, err := decode[silenced](data)
	if err != nil {
		return
	}
	name := one.DerivedName()
	text, none := s.hits(ctx, body, one)
	more := []string{text}
	if one.Schedule(time.Now(), nil) == nil {
		ends := silenceEnds(one)
		if ends == "" && s.format == formatTabular { // a limit of the server may have given it an end
			stored, err := client.Get(ctx, s.client, client.Silences, s.namespace, name)
			if err == nil {
				ends = cmp.Or(silenceEnds(stored), "it has no end")
			}
		}
		more = append(more, ends)
	}
	if undo {
		more = append(more, s.undo("silenced", "delete", name))
	}
	s.did(word, k, name, more...)
	if none {
		s.wholeAgents(one)
	}
}

// silenceEnds says when a silence ends, or nothing if it has no end.
func silenceEnds(one *silenced) string {
	var ends []string
	if one.ExpireAt > 0 {
		ends = append(ends, untilOrSince(one.ExpireAt))
	}
	if one.ExpireOnResolve {
		ends = append(ends, "when it resolves")
	}
	if len(ends) == 0 {
		return ""
	}
	return "it ends " + strings.Join(ends, ", or ")
}

// wholeAgents explains a silence of a subscription that hits nothing, most often one of a rack or a role: it is about checks
// that name the subscription, as in Sensu, not about all checks of its agents.
func (s *invocation) wholeAgents(one *silenced) {
	of := one.Subscription
	if of == "" || of == "*" || one.LabelSelector+one.FieldSelector != "" || strings.HasPrefix(of, resource.EntitySubscription("")) {
		return
	}
	fmt.Fprintf(s.errOut, "It silences checks with the subscription %s, not all checks of the agents that have it.\n", printable(of))
	fmt.Fprintf(s.errOut, "For these: lapwing silenced create --name NAME --field-selector %s\n",
		shellWord(fmt.Sprintf("%q in event.entity.subscriptions", of)))
}

// hits says how many events a silence hits, and whether it acts but hits none. It returns "" if the server does not tell.
func (s *invocation) hits(ctx context.Context, body any, one *silenced) (what string, none bool) {
	if s.format != formatTabular {
		return "", false
	}
	var p client.SilencePreview
	if err := s.client.Do(ctx, http.MethodPost, s.ownPath("silenced", "preview"), body, &p); err != nil {
		if errors.Is(err, client.ErrDenied) && !reasoned(err) {
			exists := ""
			if one.Check != "" && one.Check != "*" {
				exists = fmt.Sprintf(", and whether check %s exists,", printable(one.Check))
			}
			fmt.Fprintf(s.errOut, "Warning: what the silence hits%s is not known, since you may not list events\n", exists)
		}
		return "", false
	}
	text, failing := plural(int(p.Events), "event"), ""
	if p.Failing > 0 {
		failing = fmt.Sprintf(", %d of them failing", p.Failing)
	}
	now := time.Now()
	switch {
	case p.Holds:
		return "the silence hits " + text + " now" + failing, p.Events == 0
	case one.Expired(now):
		return "the silence has ended, and hits nothing", false
	case len(p.Spans) > 0:
		return "the silence begins in " + span(time.Unix(p.Spans[0].Begins, 0).Sub(now)) + "; it would hit " + text + failing, false
	}
	return "the silence never applies", false
}
