//go:build unix

package agent

import (
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestSecretsWithoutValue fails a check with a secret for which the backend sent no value.
func TestSecretsWithoutValue(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, nil)
	config := shellCheck("db", "echo password=$PASSWORD user=$USER_NAME")
	config.Secrets = []resource.Secret{{Name: "PASSWORD", Secret: "db-password"}, {Name: "USER_NAME", Secret: "db-user"}}
	ev := s.request(&resource.CheckRequest{Config: config, Secrets: []string{"USER_NAME=me"}, Issued: 1})
	if ev.Check.Status != 3 || !strings.Contains(ev.Check.Output, "not run") || !strings.Contains(ev.Check.Output, "PASSWORD") ||
		strings.Contains(ev.Check.Output, "USER_NAME") {
		t.Errorf("one secret is missing: status %d, output %q", ev.Check.Status, ev.Check.Output)
	}
	ev = s.request(&resource.CheckRequest{Config: config, Secrets: []string{"USER_NAME=me", "PASSWORD="}, Issued: 2})
	if ev.Check.Status != 0 || ev.Check.Output != "password= user=me\n" {
		t.Errorf("with all secrets: status %d, output %q", ev.Check.Status, ev.Check.Output)
	}
}
