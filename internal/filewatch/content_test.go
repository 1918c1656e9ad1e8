package filewatch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one")
		type reload struct {
			text   string
			failed bool
		}
		reloads := make(chan reload, 10)
		var c *Content[string]
		var err error
		c, err = NewContent(ContentOptions[string]{Paths: []string{path}, Every: time.Second,
			Logger: slog.New(slog.DiscardHandler),
			Load: func() (string, error) {
				text, err := os.ReadFile(path)
				if string(text) == "bad" {
					return "", errors.New("it is bad")
				}
				return string(text), err
			},
			Changed:  func(text string) { reloads <- reload{text: text + " and " + c.Current()} },
			Reloaded: func(err error) { reloads <- reload{failed: err != nil} }})
		if err != nil {
			t.Fatal(err)
		}
		c.Start()
		defer func() {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		write("three")
		if got := []reload{<-reloads, <-reloads}; got[0] != (reload{}) || got[1] != (reload{text: "three and three"}) {
			t.Errorf("got %v", got)
		}
		write("bad")
		if got := <-reloads; got != (reload{failed: true}) || c.Current() != "three" {
			t.Errorf("got %v, %q", got, c.Current())
		}
	})
}

func TestContentErrors(t *testing.T) {
	f := func(o ContentOptions[int]) {
		t.Helper()
		if _, err := NewContent(o); err == nil {
			t.Errorf("%+v is no error", o)
		}
	}
	load := func() (int, error) { return 0, nil }
	log := slog.New(slog.DiscardHandler)
	f(ContentOptions[int]{Every: time.Second, Load: load})
	f(ContentOptions[int]{Logger: log, Load: load})
	f(ContentOptions[int]{Every: time.Second, Logger: log, Load: func() (int, error) { return 0, errors.New("no") }})
}
