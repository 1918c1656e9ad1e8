package resource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestParseDSN: a DSN that cannot be used is refused, and the error has no part of its password, which is HUNTER2, or
// 3333 where the form needs a number.
func TestParseDSN(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(noPEM, []byte("HUNTER2"), 0o600); err != nil {
		t.Fatal(err)
	}
	const neither = "neither a URL"
	for _, tc := range []struct{ dsn, want string }{
		{"postgres://u:HUNTER2@h/db", ""},
		{"postgres://u:HUN%40TER2%2F@h/db?sslmode=require&application_name=x", ""},
		{"postgresql://h/db?user=u&password=HUNTER2", ""},
		{"postgres://u:HUNTER2@h1:1,h2:2/db", ""},
		{"postgres://u:HUNTER2@[::1]:5432/db", ""},
		{"postgres://u%40server:HUNTER2@h/db", ""},
		{"host=/run/postgresql user=u password='HUNTER2 \\' x' dbname=d-b_1 options='-c geqo=off'", ""},
		{"host=h user=u@server password = HUNTER2", ""},
		{"", ""},

		// pgx leaves these passwords in its text.
		{"host=h user=u password = HUNTER2 sslrootcert=/tmp/missing/x.pem", "the file of sslrootcert cannot be read: no such file"},
		{"host=h PASSWORD=HUNTER2 sslcert=/tmp/missing/x.pem sslkey=" + noPEM, "the file of sslkey has no key"},
		{`host=h password='it\'s HUNTER2' sslrootcert=` + noPEM, "the file of sslrootcert has no certificate"},
		{`host=h password=a\ HUNTER2 sslcert=/tmp/missing/x.pem`, "sslcert and sslkey need each other"},
		{`host=h password=a\ HUNTER2 sslcert=/tmp/x sslkey=/tmp/missing/x.pem`, "the file of sslkey cannot be read: no such file"},
		{"host=h Password\t=\tHUNTER2 port=x", "invalid port"},
		{"host=h password =HUNTER2 sslmode=maybe", "sslmode is invalid"},
		{"host=h password =HUNTER2 port=1,2", "neither as many ports as hosts"},
		{"host=h password =HUNTER2 connect_timeout=soon", "invalid connect_timeout"},
		{"host=h password =HUNTER2 target_session_attrs=HUNTER2", "unknown target_session_attrs"},
		{"host=h password =HUNTER2 target_session_attrs=`HUNTER2", neither},
		{"host=h password =HUNTER2 channel_binding=HUNTER2", "unknown channel_binding"},
		{"host=h password =HUNTER2 min_protocol_version=HUNTER2", "invalid min_protocol_version"},
		{"host=h password =HUNTER2 require_auth=HUNTER2", "invalid require_auth"},
		{"host=h password =HUNTER2 sslcertmode=HUNTER2", "invalid sslcertmode"},
		{"host=h password =HUNTER2 service=HUNTER2 servicefile=/tmp/missing/HUNTER2", "the service is not found"},
		{"host=h password =HUNTER2 statement_cache_capacity=HUNTER2", "cannot parse statement_cache_capacity"},
		{"host=h password =HUNTER2 default_query_exec_mode=HUNTER2", "invalid default_query_exec_mode"},
		{"host=h password =HUNTER2 pool_max_conns=HUNTER2", "begins with pool_"},
		{"host=h password =HUNTER2 pool_max_conns=0", "pool_max_conns too small"},
		{"postgres://h/db?pass%77ord=HUNTER2&sslrootcert=/tmp/missing/x.pem", "the file of sslrootcert cannot be read"},
		{"postgres://u:HUN%54ER2@h/db?sslrootcert=/tmp/missing/x.pem", "the file of sslrootcert cannot be read"},

		// Malformed ones.
		{"HUNTER2", neither},
		{"postgres://u:HUNTER2%zz@h/db", neither},
		{"postgres://u:HUNTER2@[::1/db", neither},
		{"postgres://u:HUNTER2", "invalid port"},
		{"postgres://u:HUNTER2@h:x/db", "invalid port"},
		{"postgres://u:HUN/TER2@h/db", "invalid port"},
		{"host=h password='HUNTER2", neither},
		{"host=h password=a HUNTER2", neither},
		{"host=h password HUNTER2 user=u", neither},

		// pgx takes these, and then errors of a connection have a part of the password.
		{"postgres://u:HUNT@HUNTER2@h/db", "%40"},
		{"postgres://u:3333/HUNTER2@h/db", "%40"},
		{"postgres://u:3333/x@h/db", "%40"},
		{"postgres://u:HUN@TER2?x=y@h/db", "%40"},
		{" postgres://u:HUNTER2@h/db?sslmode=require", neither},
		{"mysql://u:HUNTER2@h/db?sslmode=require", neither},
		{"host=h;Username=u;Password=HUNTER2", "no host name"},
		{"host=h user=u PASSWORD=HUNTER2", "in lower case"},
		{"host=h user=u pwd=HUNTER2", "the keyword of the password is password"},
		{"Host=h;Username=u;Password=HUNTER2", "another value has a password"},
		{"Server=h;Username=u;Password=HUNTER2", "another value has a password"},
		{"host=h dbname=d,password=HUNTER2", "another value has a password"},
		{"host=h user=u;pwd=HUNTER2", "another value has a password"},
		{"host=h application_name='password: HUNTER2'", "another value has a password"},
		{"host=h sslrootcert=/tmp/x.pem;password=HUNTER2", "the file of sslrootcert cannot be read"},
	} {
		_, byPool := ParseDSN(tc.dsn, pgxpool.ParseConfig)
		_, byPgx := ParseDSN(tc.dsn, pgx.ParseConfig)
		_, byConn := ParseDSN(tc.dsn, pgconn.ParseConfig)
		if tc.want == "" && byPool != nil || tc.want != "" && (byPool == nil || !strings.Contains(byPool.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.dsn, byPool, tc.want)
		}
		for _, err := range []error{byPool, byPgx, byConn} {
			if err == nil {
				continue
			}
			for _, part := range []string{"HUN", "TER2", "3333", "/tmp"} {
				if strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error has %s: %v", tc.dsn, part, err)
				}
			}
		}
	}
}

// FuzzParseDSN: an error has no word of the DSN that is not its own.
func FuzzParseDSN(f *testing.F) {
	for _, seed := range []string{"host=h password=%s port=x", "postgres://u:%s@h:x/db?sslmode=y", "x", "postgres://%s@/?a=%s"} {
		f.Add(seed)
	}
	const password = "§HUNTER2§"
	f.Fuzz(func(t *testing.T, form string) {
		if _, err := ParseDSN(strings.ReplaceAll(form, "%s", password), pgxpool.ParseConfig); err != nil && strings.Contains(err.Error(), "HUNTER2") {
			t.Errorf("%s: %v", form, err)
		}
	})
}
