package audit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
)

// TestSecretsOfDefinitions: the log shows a definition as readers of the API see it, and still shows that a secret has
// changed.
func TestSecretsOfDefinitions(t *testing.T) {
	for _, tc := range []struct{ kind, old, new string }{
		{config.Handlers.String(),
			`{"metadata":{"name":"h"},"type":"webhook","webhook":{"url":"https://u:hush@example.com/hush?k=hush","headers":{"Authorization":"hush"},"body":"hush"}}`,
			`{"metadata":{"name":"h"},"type":"webhook","webhook":{"url":"https://u:hush2@example.com/hush2?k=hush2","headers":{"Authorization":"hush2"},"body":"hush2"}}`},
		{config.Handlers.String(),
			`{"metadata":{"name":"h"},"type":"slack","slack":{"channel":"#a","url":"https://hooks.example.com/services/hush"}}`,
			`{"metadata":{"name":"h"},"type":"slack","slack":{"channel":"#b","url":"https://hooks.example.com/services/hush2"}}`},
		{config.Handlers.String(),
			`{"metadata":{"name":"h"},"type":"pagerduty","pagerduty":{"routing_key":"hush","url":"https://u:hush@example.com/hush"}}`,
			`{"metadata":{"name":"h"},"type":"pagerduty","pagerduty":{"routing_key":"hush2","url":"https://u:hush2@example.com/hush2"}}`},
		{config.Handlers.String(),
			`{"metadata":{"name":"h"},"type":"alertmanager","alertmanager":{"urls":["https://example.com/hush?x=hush"]}}`,
			`{"metadata":{"name":"h"},"type":"alertmanager","alertmanager":{"urls":["https://example.com/hush2?x=hush2"]}}`},
		{config.Assets.String(),
			`{"metadata":{"name":"a"},"url":"https://example.com/x.tgz","sha512":"1","headers":{"X-JFrog-Art-Api":"hush"}}`,
			`{"metadata":{"name":"a"},"url":"https://example.com/x.tgz","sha512":"2","headers":{"X-JFrog-Art-Api":"hush2"}}`},
		{config.Assets.String(),
			`{"metadata":{"name":"a"},"url":"https://u:hush@example.com/x.tgz","sha512":"1"}`,
			`{"metadata":{"name":"a"},"url":"https://u:hush2@example.com/x.tgz","sha512":"2"}`},
		{config.PostgresConfigs.String(),
			`{"metadata":{"name":"p"},"spec":{"dsn":"postgres://u:hush@db/x","pool_size":1}}`,
			`{"metadata":{"name":"p"},"spec":{"dsn":"host=db password=hush2","pool_size":2}}`},
		{config.Checks.String(),
			`{"metadata":{"name":"c"},"env_vars":["DB_PASSWORD=hush"]}`, `{"metadata":{"name":"c"},"env_vars":["DB_PASSWORD=hush2"]}`},
	} {
		for _, pair := range [][2][]byte{{[]byte(tc.old), []byte(tc.new)}, {nil, []byte(tc.new)}, {[]byte(tc.old), nil}} {
			changes := Diff(pair[0], pair[1])
			hideSecrets(changes, tc.kind, pair[0], pair[1])
			text, err := json.Marshal(changes)
			if err != nil || len(changes) == 0 || strings.Contains(string(text), "hush") {
				t.Errorf("%s: %s, %v", tc.kind, text, err)
			}
		}
	}
	changes := Diff([]byte(`{"type":"slack","slack":{"channel":"#a"}}`), []byte(`{"type":"slack","slack":{"channel":"#b"}}`))
	hideSecrets(changes, config.Handlers.String(), []byte(`{"type":"slack","slack":{"channel":"#a"}}`), []byte(`{"type":"slack","slack":{"channel":"#b"}}`))
	if len(changes) != 1 || string(changes[0].Old) != `"#a"` || string(changes[0].New) != `"#b"` {
		t.Errorf("a change that is no secret: %+v", changes)
	}
}
