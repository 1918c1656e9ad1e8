package references

import (
	"fmt"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Unreachable says by which of its handlers a contact gets no mail, because they send only to its address, and it has none.
func Unreachable(sn *config.Snapshot, c *resource.Contact) (texts []string) {
	if strings.TrimSpace(c.Email) != "" {
		return nil
	}
	for _, name := range c.Handlers {
		h, ok := config.Get(sn, config.Handlers, c.Metadata.Namespace, name)
		if ok && h.Email != nil && onlyToContact(h.Email.To) {
			texts = append(texts, fmt.Sprintf("it has no email, and handler %s sends only to that", name))
		}
	}
	return texts
}

// Uncontacted says which handlers of a definition send only to the address of a contact: where no contact names them, they
// send to no address.
func Uncontacted(sn *config.Snapshot, obj any) (texts []string) {
	namespace, _ := usesOf(obj)
	for _, name := range handlersNamed(obj) {
		if h, ok := config.Get(sn, config.Handlers, namespace, name); ok && h.Email != nil && onlyToContact(h.Email.To) {
			texts = append(texts, fmt.Sprintf("handler %s sends only to the email of a contact, and no contact is named here", name))
		}
	}
	return texts
}

// handlersNamed returns the handlers that a definition names for all its events.
func handlersNamed(obj any) (names []string) {
	switch o := obj.(type) {
	case *resource.CheckConfig:
		return o.Handlers
	case *resource.Pipeline:
		for _, w := range o.Workflows {
			if w.Handler != nil && w.Handler.Type == "Handler" {
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

// onlyToContact reports whether all recipients are templates with the address of the contact.
func onlyToContact(to []string) bool {
	for _, template := range to {
		if !strings.Contains(template, ".Contact.Email") {
			return false
		}
	}
	return len(to) > 0
}
