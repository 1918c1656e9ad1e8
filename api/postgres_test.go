package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const datastorePath = "/api/enterprise/store/v1/provider"

func postgresBody(name, spec string) string {
	return `{"type":"PostgresConfig","api_version":"store/v1","metadata":{"name":"` + name + `","labels":{"` +
		managedByLabel + `":"` + managedByCtl + `"}},"spec":{` + spec + `}}`
}

// TestPostgresConfigs: definitions are wrapped, have Sensu's statuses, and show the dsn only to users who may update
// them.
func TestPostgresConfigs(t *testing.T) {
	s := newServer(t, nil)
	s.grant("readers", "", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"provider"}})
	reader := []string{"Authorization", "Bearer " + s.user("reader", "readers")}
	const one = datastorePath + "/db"
	const dsn = `"dsn":"postgres://lapwing:s3cret@db/events"`
	if body := s.do("GET", datastorePath, "").is(http.StatusOK).body; body != "[]" {
		t.Errorf("without a definition: %s", body)
	}
	s.do("GET", one, "").is(http.StatusNotFound)
	s.do("PUT", one, postgresBody("db", dsn), reader...).is(http.StatusForbidden)
	put := s.do("PUT", one, postgresBody("db", dsn+`,"pool_size":20,"strict":true,"events_retention":"90d"`)).is(http.StatusOK)
	if put.body != "" || put.header.Get("Warning") != "" {
		t.Errorf("PUT answers %q, warning %q", put.body, put.header.Get("Warning"))
	}
	const fields = `"pool_size":20,"max_conn_lifetime":"","max_idle_conns":2,"batch_workers":0,"batch_buffer":0,"batch_size":1,` +
		`"strict":true,"enable_round_robin":false,"events_retention":"90d"}}`
	for _, path := range []string{one, datastorePath} {
		for who, header := range map[string][]string{"admin": nil, "reader": reader} {
			body := s.do("GET", path, "", header...).is(http.StatusOK).body
			if !strings.Contains(body, fields) || !strings.Contains(body, `"type":"PostgresConfig","api_version":"store/v1"`) ||
				!strings.Contains(body, `"created_by":"admin"`) {
				t.Errorf("GET %s: %s", path, body)
			}
			if strings.Contains(body, dsn) != (who == "admin") || strings.Contains(body, `"dsn":"REDACTED"`) != (who == "reader") {
				t.Errorf("GET %s as %s: %s", path, who, body)
			}
		}
	}
	// A selector does not match a hidden value.
	query := datastorePath + "?fieldSelector=postgresconfig.spec.dsn+matches+%22s3cret%22"
	if body := s.do("GET", query, "", reader...).is(http.StatusOK).body; body != "[]" {
		t.Errorf("a reader's selector finds %s", body)
	}
	if body := s.do("GET", query, "").is(http.StatusOK).body; !strings.Contains(body, "s3cret") {
		t.Errorf("the administrator's selector finds %s", body)
	}

	// What a reader sees can be written back.
	shown := s.do("GET", one, "", reader...).body
	s.do("PUT", one, strings.Replace(shown, `"pool_size":20`, `"pool_size":21`, 1)).is(http.StatusOK)
	p, _ := config.Get(s.store.Snapshot(), config.PostgresConfigs, "", "db")
	if p.Spec.DSN != "postgres://lapwing:s3cret@db/events" || p.Spec.PoolSize != 21 {
		t.Errorf("stored is %+v", p.Spec)
	}
	s.do("PUT", datastorePath+"/new", postgresBody("new", `"dsn":"REDACTED"`)).is(http.StatusBadRequest)

	for body, want := range map[string]string{
		`{`:                            "unexpected EOF",
		postgresBody("db", `"dsn":""`): "resource is invalid: dsn must be set",
		postgresBody("db", `"dsn":"host=db sslmode=x"`):                          "sslmode is invalid",
		postgresBody("db", `"dsn":"host=db","pool_size":-1`):                     "pool_size -1 is out of bounds",
		postgresBody("other", dsn):                                               "does not match",
		strings.Replace(postgresBody("db", dsn), "store/v1", "core/v2", 1):       "api_version must be store/v1",
		strings.Replace(postgresBody("db", dsn), `"PostgresConfig"`, `"Env"`, 1): "type must be PostgresConfig",
	} {
		if a := s.do("PUT", one, body).is(http.StatusBadRequest); !strings.Contains(a.body, want) {
			t.Errorf("PUT %s: %s, want %s", body, a.body, want)
		}
	}
	s.do("POST", datastorePath, postgresBody("x", dsn)).is(http.StatusMethodNotAllowed)
	s.do("PATCH", one, `{}`).is(http.StatusMethodNotAllowed)
	s.do("DELETE", one, "", reader...).is(http.StatusForbidden)
	s.do("DELETE", one, "").is(http.StatusNoContent)
	s.do("DELETE", one, "").is(http.StatusNotFound)
}

// TestSeveralPostgresConfigs: the author of a definition learns which one is used.
func TestSeveralPostgresConfigs(t *testing.T) {
	s := newServer(t, nil)
	put := func(name string) string {
		return s.do("PUT", datastorePath+"/"+name, postgresBody(name, `"dsn":"host=db"`)).is(http.StatusOK).header.Get("Warning")
	}
	for _, tc := range []struct{ name, want string }{
		{"m", ""}, {"m", ""},
		{"z", "there are 2 definitions of PostgreSQL, and only the first by name is used: m"},
		{"b", "there are 3 definitions of PostgreSQL, and only the first by name is used: b"},
	} {
		if got := put(tc.name); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("PUT of %s: warning %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestPrunePostgresConfig: prune treats it like other definitions outside of namespaces.
func TestPrunePostgresConfig(t *testing.T) {
	s := newServer(t, nil)
	for _, name := range []string{"keep", "drop"} {
		s.do("PUT", datastorePath+"/"+name, postgresBody(name, `"dsn":"host=db password=s3cret"`)).is(http.StatusOK)
	}
	got := s.do("POST", prunePath+"types=store/v1.PostgresConfig&clusterWide=true", postgresBody("keep", `"dsn":"x"`)).is(http.StatusCreated)
	var gone []reference
	if got.has(&gone); len(gone) != 1 || gone[0].Type != "PostgresConfig" || gone[0].Metadata.Name != "drop" ||
		gone[0].APIVersion != "store/v1" || strings.Contains(got.body, "s3cret") {
		t.Errorf("pruned %s", got.body)
	}
	if body := s.do("GET", datastorePath, "").body; !strings.Contains(body, `"keep"`) || strings.Contains(body, `"drop"`) {
		t.Errorf("there are %s", body)
	}
}
