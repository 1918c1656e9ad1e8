package send

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestFilesStayHere: the author of a handler tries to have files of the backend's host sent to the author's server.
func TestFilesStayHere(t *testing.T) {
	srv := newService(t, status(200, "ok"))
	top := t.TempDir()
	dir, private := filepath.Join(top, "secrets"), filepath.Join(top, "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(private, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skip("no links here: ", err)
		}
	}
	link(private, "absolute")
	link("../private", "relative")
	link("..", "up")
	link("token", "inside") // like mounted secrets
	s := setup(t, Options{SecretDirs: []string{dir}})
	names := []string{
		"/etc/passwd", private, dir, dir + "/../private", dir + "/absolute", dir + "/relative", dir + "/up/private",
		"secrets/token", dir + "x/token",
	}
	for _, name := range names {
		h := webhook(srv.URL)
		h.Webhook.Username, h.Webhook.PasswordFile = "me", name
		if res := s.Run(t.Context(), h, job(event(2))); res.Err == nil || !strings.Contains(res.Err.Error(), "read secret") {
			t.Errorf("with password_file %s: %v", name, res.Err)
		}
		h = webhook(srv.URL)
		h.Webhook.TLS = &resource.HandlerTLS{CertFile: name, KeyFile: name}
		if res := s.Run(t.Context(), h, job(event(2))); res.Err == nil || !strings.Contains(res.Err.Error(), "read TLS file") {
			t.Errorf("with key_file %s: %v", name, res.Err)
		}
	}
	for _, name := range []string{"token", "inside", "../secrets/token"} {
		h := webhook(srv.URL)
		h.Webhook.TokenFile = dir + "/" + name
		want(t, name, s.Run(t.Context(), h, job(event(2))), KindOK, false, "")
		if got := srv.asked(t); got.header.Get("Authorization") != "Bearer mine" {
			t.Errorf("%s: %s", name, got.header.Get("Authorization"))
		}
	}
	// Without directories no file can be read.
	h := webhook(srv.URL)
	h.Webhook.TokenFile = dir + "/token"
	want(t, "no directories", setup(t, Options{}).Run(t.Context(), h, job(event(2))), KindError, false, "--handler-secret-dirs")
	if err := s.Allowed(h); err != nil {
		t.Error(err)
	}
	h.Webhook.TokenFile = "/etc/passwd"
	if err := s.Allowed(h); err == nil {
		t.Error("/etc/passwd is allowed")
	}
}

// TestForbiddenTypes: handlers have types that the operator does not allow.
func TestForbiddenTypes(t *testing.T) {
	srv := newService(t, status(http.StatusOK, "ok"))
	s := setup(t, Options{Types: []string{"webhook", "set"}})
	mark := filepath.Join(t.TempDir(), "mark")
	pipe := &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: "pipe"}, Type: "pipe", Command: "touch " + mark}
	want(t, "pipe", s.Run(t.Context(), pipe, job(event(2))), KindError, false,
		"handlers of type pipe are not allowed on this backend (--allowed-handler-types)")
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command was run")
	}
	want(t, "webhook", s.Run(t.Context(), webhook(srv.URL), job(event(2))), KindOK, false, "")
	if s.Allowed(pipe) == nil || s.Allowed(webhook(srv.URL)) != nil {
		t.Error("the definitions are judged otherwise than the attempts")
	}
	if s.MutatorAllowed(&resource.Mutator{Type: "pipe"}) == nil || s.MutatorAllowed(&resource.Mutator{}) == nil ||
		s.MutatorAllowed(&resource.Mutator{Type: "javascript"}) != nil {
		t.Error("mutators that are commands must go with pipe handlers")
	}
	for _, opts := range []Options{{Types: []string{"pipes"}}, {SecretDirs: []string{"secrets"}}} {
		if _, err := New(opts); err == nil {
			t.Errorf("%+v is accepted", opts)
		}
	}
}
