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

// onlyToContact reports whether all recipients are templates with the address of the contact.
func onlyToContact(to []string) bool {
	for _, template := range to {
		if !strings.Contains(template, ".Contact.Email") {
			return false
		}
	}
	return len(to) > 0
}
