package test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestPrometheusRules evaluates a rule file, and asks Prometheus' API for it: as the administrator, and as a user who may
// not see all series.
func TestPrometheusRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yml")
	text := "groups: [{name: g, interval: 1s, rules: [{alert: Always, expr: 'vector(1)', labels: {host: web1}}]}]"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := testbackend.Start(t, func(o *testbackend.Options) { o.RuleFiles = []string{file} })
	eventually(t, time.Minute, "the alert has an event", func() bool {
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName("web1", "Always"))
		return err == nil && ev.Check.Status == 2
	})
	type answer struct {
		Data struct {
			Groups []struct{ Name string }
			Alerts []struct{ State string }
		}
	}
	ask := func(c *client.Client, path string) (a answer) {
		t.Helper()
		if err := c.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/prometheus/api/v1/"+path, nil, &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask(b.Client, "rules"); len(a.Data.Groups) != 1 || a.Data.Groups[0].Name != "g" {
		t.Errorf("the rules are %+v", a)
	}
	if a := ask(b.Client, "alerts"); len(a.Data.Alerts) != 1 || a.Data.Alerts[0].State != "firing" {
		t.Errorf("the alerts are %+v", a)
	}
	red := signedIn(t, b, "red", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"metrics", "events"}})
	if a := ask(red, "rules"); len(a.Data.Groups) != 0 {
		t.Errorf("one who may see the series of a namespace gets the rules %+v", a)
	}
	if a := ask(red, "alerts"); len(a.Data.Alerts) != 0 {
		t.Errorf("one who may see the series of a namespace gets the alerts %+v", a)
	}
}
