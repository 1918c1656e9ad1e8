package ctl_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestDumpWithoutLicence uses a server that, like Sensu's, serves one type only with a licence: the dump is complete
// without it.
func TestDumpWithoutLicence(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	status := http.StatusPaymentRequired
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/users"):
			w.WriteHeader(status)
			io.WriteString(w, `{"code":6,"message":"license required"}`)
		case strings.HasSuffix(r.URL.Path, "/handlers"):
			io.WriteString(w, `[{"metadata":{"name":"slack","namespace":"default"},"type":"pipe","command":"slack"}]`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	dump := func() (stdout, stderr string, err error) {
		var out, errs bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetArgs([]string{"dump", "all", "--api-key", "k", "--api-url", srv.URL})
		err = root.Execute()
		return out.String(), errs.String(), err
	}
	stdout, stderr, err := dump()
	if err != nil || stderr != "" || !strings.Contains(stdout, "name: slack") {
		t.Errorf("without a licence: %v\n%s%s", err, stderr, stdout)
	}
	status = http.StatusForbidden
	stdout, stderr, err = dump()
	if err == nil || !strings.Contains(err.Error(), "1 of ") || !strings.Contains(stderr, "users: left out: ") ||
		!strings.Contains(stdout, "name: slack") {
		t.Errorf("refused: %v\n%s%s", err, stderr, stdout)
	}
}
