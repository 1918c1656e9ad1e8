package resource

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func postgres(t *testing.T, spec string) *PostgresConfig {
	t.Helper()
	p := new(PostgresConfig)
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"db"},"spec":`+spec+`}`), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPostgresConfigJSON(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{`{"dsn":"x"}`, `{"dsn":"x","pool_size":0,"max_conn_lifetime":"","max_idle_conns":2,"batch_workers":0,"batch_buffer":0,` +
			`"batch_size":1,"strict":false,"enable_round_robin":false}`},
		{`{"dsn":"x","pool_size":3,"max_conn_lifetime":"5m","max_idle_conns":0,"batch_workers":4,"batch_buffer":5,"batch_size":0,` +
			`"strict":true,"enable_round_robin":true,"events_retention":"90d","changes_retention":"1d","notifications_retention":"2h"}`, ""},
	} {
		if tc.want == "" {
			tc.want = tc.spec
		}
		got, err := json.Marshal(postgres(t, tc.spec))
		want := `{"type":"PostgresConfig","api_version":"store/v1","metadata":{"name":"db"},"spec":` + tc.want + `}`
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", tc.spec, got, err, want)
		}
	}
	for _, bad := range []string{
		`{"type":"ldap"}`, `{"api_version":"core/v2"}`, `{"spec":{"pool_size":"1"}}`, `{"spec":{"strict":1}}`, `[]`,
	} {
		if err := json.Unmarshal([]byte(bad), new(PostgresConfig)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestPostgresConfigValidate(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{`{"dsn":"postgresql://user:hush@db.example:6432/events?sslmode=require"}`, ""},
		{`{"dsn":"host=/run/postgresql dbname=events password='hu sh'"}`, ""},
		{`{"dsn":"host=a,b port=1,2","pool_size":20,"max_conn_lifetime":"2h1m3s","events_retention":"90d"}`, ""},
		{`{}`, "dsn must be set"},
		{`{"dsn":"hush"}`, "neither a URL"},
		{`{"dsn":"host=db user=u hush"}`, "neither a URL"},
		{`{"dsn":"host=db password='hush"}`, "neither a URL"},
		{`{"dsn":"postgres://u:hu%zzsh@db"}`, "neither a URL"},
		{`{"dsn":"postgres://u:hush:hush@db:x/y"}`, "invalid port"},
		{`{"dsn":"host=db password=hush sslmode=maybe"}`, "sslmode is invalid"},
		{`{"dsn":"host=db password=hush sslmode=verify-full sslrootcert=/nonexistent/ca.pem"}`, "the file of sslrootcert cannot be read"},
		{`{"dsn":"host=db","pool_size":-1}`, "pool_size -1 is out of bounds"},
		{`{"dsn":"host=db","pool_size":2147483648}`, "pool_size 2147483648 is out of bounds"},
		{`{"dsn":"host=db","max_idle_conns":-1}`, "max_idle_conns -1"},
		{`{"dsn":"host=db","batch_workers":-1}`, "batch_workers -1"},
		{`{"dsn":"host=db","batch_buffer":-1}`, "batch_buffer -1"},
		{`{"dsn":"host=db","batch_size":-1}`, "batch_size -1"},
		{`{"dsn":"host=db","max_conn_lifetime":"5"}`, "max_conn_lifetime must be a duration"},
		{`{"dsn":"host=db","max_conn_lifetime":"-5s"}`, "max_conn_lifetime must be a duration"},
		{`{"dsn":"host=db","events_retention":"0","changes_retention":"1h","notifications_retention":"36500d"}`, ""},
		{`{"dsn":"host=db","events_retention":"1ns"}`, "events_retention must be a time such as 720h or 90d, from 1h to 36500d, or 0 for ever"},
		{`{"dsn":"host=db","events_retention":"long"}`, "events_retention must be a time"},
		{`{"dsn":"host=db","changes_retention":"59m"}`, "changes_retention must be a time"},
		{`{"dsn":"host=db","notifications_retention":"-1h"}`, "notifications_retention must be a time"},
	} {
		err := postgres(t, tc.spec).Validate()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.spec, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the message shows the password: %v", tc.spec, err)
		}
	}
	p := postgres(t, `{"dsn":"host=db"}`)
	p.Metadata.Name = "a b"
	requireReason(t, p, "provider name cannot contain spaces or special characters")
	p.Metadata = ObjectMeta{Name: "db", Namespace: "default"}
	requireReason(t, p, "provider cannot have a namespace")
}

func TestPostgresConfigSecrets(t *testing.T) {
	stored := postgres(t, `{"dsn":"postgres://u:hush@db/x"}`)
	shown := stored.Redacted()
	if shown.Spec.DSN != Redacted || stored.Spec.DSN == Redacted {
		t.Errorf("shown %q, stored %q", shown.Spec.DSN, stored.Spec.DSN)
	}
	shown.Spec.PoolSize = 7
	if kept, err := shown.WithSecrets(stored); err != nil || kept.Spec.DSN != stored.Spec.DSN || kept.Spec.PoolSize != 7 {
		t.Errorf("written back: %+v, %v", kept, err)
	}
	if _, err := shown.WithSecrets(nil); err == nil {
		t.Error("a placeholder without a secret is accepted")
	}
	shown.Spec.DSN = "postgres://u:" + Redacted + "@elsewhere/x"
	if got, err := shown.WithSecrets(stored); err == nil {
		t.Errorf("a placeholder within a text is stored as %q", got.Spec.DSN)
	}
	shown.Spec.DSN = "host=new"
	if got, err := shown.WithSecrets(stored); err != nil || got.Spec.DSN != "host=new" {
		t.Errorf("a new dsn: %+v, %v", got, err)
	}
}

func TestParseRetention(t *testing.T) {
	const bad = -1
	for text, want := range map[string]time.Duration{
		"720h": 720 * time.Hour, "90d": 90 * 24 * time.Hour, "1h30m": 90 * time.Minute, "36500d": 36500 * 24 * time.Hour,
		"1h": time.Hour, "0": 0, "0s": 0, "0d": 0,
		"": bad, "d": bad, "-1d": bad, "-1h": bad, "1.5d": bad, "36501d": bad, "876001h": bad, "99999999999999999999d": bad,
		"-9999999d": bad, "90": bad, "1d12h": bad, "1ns": bad, "59m59s": bad,
	} {
		got, err := ParseRetention(text)
		if want == bad && err == nil || want != bad && (err != nil || got != want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

func FuzzParseRetention(f *testing.F) {
	for _, seed := range []string{"720h", "90d", "-1d", "1h30m", "d", "9223372036854775807d", "0", "-9223372036854775808d", "1ns"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseRetention(text)
		if d != 0 && (err != nil || d < minRetention) || d > maxRetention*24*time.Hour {
			t.Errorf("%q: %v, %v", text, d, err)
		}
		if err != nil {
			return
		}
		if again, err := ParseRetention(d.String()); err != nil || again != d {
			t.Errorf("%q is %v, which is read as %v, %v", text, d, again, err)
		}
	})
}
