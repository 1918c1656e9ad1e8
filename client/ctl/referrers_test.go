package ctl_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReferrersOfServers: if a server does not tell what names a resource, a line says so, and the deletion goes on. One that
// does not know the question is asked no further. Of very many referrers the server lists a part.
func TestReferrersOfServers(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	status, answer := 0, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/referrers") {
			w.WriteHeader(status)
			io.WriteString(w, answer)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	for _, c := range []struct {
		status       int
		answer, want string
	}{
		{404, `404 page not found`, ""},
		{500, `{"message":"no disk","code":0}`, "Warning: what still names handler slack is not known: no disk\n"},
		{200, `{"referrers":[]}`, ""},
		{200, `{"referrers":[{"type":"CheckConfig","namespace":"default","name":"c","what":"handler","named":"slack"}],` +
			`"more":{"handlers/slack":39000}}`, "Warning: CheckConfig c still names handler slack\n" +
			"Warning: 39000 more name handler slack, which the server did not list\n"},
	} {
		status, answer = c.status, c.answer
		var out, errs bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetArgs([]string{"handler", "delete", "slack", "--skip-confirm", "--api-key", "k", "--api-url", srv.URL})
		err := root.Execute()
		if err != nil || errs.String() != c.want || !strings.HasPrefix(out.String(), "Deleted ") {
			t.Errorf("%d %s: %v\n%s%swant\n%s", c.status, c.answer, err, out.String(), errs.String(), c.want)
		}
	}
}
