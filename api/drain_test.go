package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// drains is a Drainer that records its calls.
type drains struct {
	since time.Time
	over  time.Duration
}

func (d *drains) Drain(over time.Duration) { d.since, d.over = time.Unix(1_800_000_000, 0), over }
func (d *drains) Undrain()                 { *d = drains{} }

func (d *drains) Draining() (since time.Time, over time.Duration, sessions int) {
	return d.since, d.over, 3
}

func TestDrain(t *testing.T) {
	sessions := new(drains)
	s := newServer(t, func(o *Options) { o.Drain = sessions })
	const path = "/api/lapwing/v1/drain"
	state := func(want string) {
		t.Helper()
		if got := s.do("GET", path, "").is(200).body; got != want {
			t.Errorf("state is %s, want %s", got, want)
		}
	}
	idle := `{"draining":false,"sessions":3}`
	state(idle)
	s.do("GET", "/ready", "").is(200)
	for _, bad := range []string{`{"over_seconds":-1}`, `{"over_seconds":3601}`, `{"over_seconds":"1m"}`, `{`} {
		s.do("POST", path, bad).is(400)
	}
	state(idle)
	for _, tc := range []struct {
		body string
		want time.Duration
	}{{"", 30 * time.Second}, {"{}", 30 * time.Second}, {`{"over_seconds":0}`, 0}, {`{"over_seconds":120}`, 2 * time.Minute}} {
		s.do("POST", path, tc.body).is(200)
		if sessions.over != tc.want {
			t.Errorf("%q drains over %s, want %s", tc.body, sessions.over, tc.want)
		}
	}
	state(`{"draining":true,"since":1800000000,"over_seconds":120,"sessions":3}`)
	if got := s.do("GET", "/ready", ""); got.status != 503 ||
		got.body != "draining since 2027-01-15T08:00:00Z: agents are sent to other backends, 3 are left\n" {
		t.Errorf("/ready: %d %s", got.status, got.body)
	}

	c, err := client.New(client.Options{URL: s.url, Tokens: client.Tokens{AccessToken: s.token}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if h, err := c.Health(t.Context()); err != nil || len(h.ClusterHealth) != 1 || !h.ClusterHealth[0].Healthy ||
		!h.ClusterHealth[0].Draining {
		t.Errorf("health: %+v, %v", h, err)
	}
	if d, err := c.Draining(t.Context(), ""); err != nil || !d.Draining || d.Sessions != 3 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := c.Drain(t.Context(), "", time.Minute); err != nil || d.OverSeconds != 60 || sessions.over != time.Minute {
		t.Errorf("%+v, %v", d, err)
	}
	if err := c.Undrain(t.Context(), ""); err != nil {
		t.Error(err)
	}
	state(idle)
	s.do("GET", "/ready", "").is(200)
	var actions []string
	for _, e := range s.audit("/api/lapwing/v1/audit?resource=cluster&name=drain") {
		actions = append(actions, e.Action)
	}
	if len(actions) != 6 || actions[0] != "delete" || actions[1] != "create" {
		t.Errorf("the audit log has %v", actions)
	}
	s.do(http.MethodPut, path, "").is(405)
}
