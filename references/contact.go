package references

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// unreachable says by which of its handlers a contact gets no mail, because they send only to its address, and it has none.
func unreachable(sn *config.Snapshot, c *resource.Contact) (texts []string) {
	if strings.TrimSpace(c.Email) != "" {
		return nil
	}
	for _, name := range distinct(c.Handlers) {
		h, ok := config.Get(sn, config.Handlers, c.Metadata.Namespace, name)
		if ok && h.Email != nil && onlyToContact(h.Email) {
			texts = append(texts, fmt.Sprintf("it has no email, and handler %s sends only to that", name))
		}
	}
	return texts[:min(maxNearest, len(texts))]
}

func distinct(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// Uncontacted says which handlers of a definition, or of the contacts of a rota, send only to the address of a contact: where no
// contact names them, or the contact has no address, they send to none.
func Uncontacted(sn *config.Snapshot, obj any) (texts []string) {
	switch o := obj.(type) {
	case *resource.Contact:
		return unreachable(sn, o)
	case *resource.Rota:
		names := slices.Clone(o.Contacts)
		for _, over := range o.Overrides {
			names = append(names, over.Contact)
		}
		for _, name := range distinct(names) {
			c, ok := config.Get(sn, config.Contacts, o.Metadata.Namespace, name)
			if !ok {
				continue
			}
			for _, text := range unreachable(sn, c) {
				texts = append(texts, "contact "+name+": "+text)
			}
		}
		return texts[:min(maxNearest, len(texts))]
	}
	names := handlersNamed(obj)
	if len(names) == 0 {
		return nil
	}
	namespace, _ := usesOf(obj)
	for _, name := range distinct(names) {
		if h, ok := config.Get(sn, config.Handlers, namespace, name); ok && h.Email != nil && onlyToContact(h.Email) {
			texts = append(texts, fmt.Sprintf("handler %s sends only to the email of a contact, and no contact is named here", name))
		}
	}
	return texts[:min(maxNearest, len(texts))]
}

// handlersNamed returns the handlers that a definition names for all its events.
func handlersNamed(obj any) (names []string) {
	switch o := obj.(type) {
	case *resource.CheckConfig:
		return o.Handlers
	case *resource.Pipeline:
		for _, w := range o.Workflows {
			if w.Handler != nil && (w.Handler.Type == "Handler" || w.Handler.Type == "") {
				names = append(names, w.Handler.Name)
			}
		}
	case *resource.Handler:
		if o.Escalation == nil {
			return o.Handlers
		}
		for _, step := range o.Escalation.Steps {
			for _, to := range step.Notify {
				if to.Handler != "" {
					names = append(names, to.Handler)
				}
			}
		}
	}
	return names
}

// contactAlone is a recipient that is the address of the contact and nothing else.
var contactAlone = regexp.MustCompile(`^\s*\{\{-?\s*\.Contact\.Email\s*-?\}\}\s*$`)

// onlyToContact reports whether a mail has no other recipient than the contact.
func onlyToContact(m *resource.HandlerEmail) bool {
	all := slices.Concat(m.To, m.Cc)
	return len(all) > 0 && !slices.ContainsFunc(all, func(to string) bool { return !contactAlone.MatchString(to) })
}
