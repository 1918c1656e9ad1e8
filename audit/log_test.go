package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type part interface {
	Start(context.Context) error
	Stop() error
}

func start(t *testing.T, p part, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func newLog(t *testing.T, file string) (*Log, *config.Store, *time.Time) {
	t.Helper()
	b, err := broker.New(broker.Options{Dir: t.TempDir()})
	start(t, b, err)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l, err := New(Options{Broker: b, File: file, Now: func() time.Time { return now }})
	start(t, l, err)
	store, err := config.New(config.Options{Broker: b, Written: l.Written})
	start(t, store, err)
	return l, store, &now
}

func (l *Log) all(t *testing.T, q Query) []Entry {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 1_000_000
	}
	entries, next, err := l.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if next != 0 {
		t.Errorf("there are more than %d entries", q.Limit)
	}
	return entries
}

// TestWrites makes each kind of write, with an author and without.
func TestWrites(t *testing.T) {
	l, store, _ := newLog(t, "")
	ctx := config.WithAuthor(t.Context(), config.Author{User: "ann", Remote: "192.0.2.1:5", Request: "PUT /x"})
	check := func(interval uint32) *resource.CheckConfig {
		return &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "cpu"}, Interval: interval}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(config.Put(t.Context(), store, config.Checks, check(1))) // without an author
	must(config.Delete(t.Context(), store, config.Checks, "default", "cpu"))
	must(config.Create(ctx, store, config.Checks, check(10)))
	must(config.Put(ctx, store, config.Checks, check(10))) // changes nothing
	must(config.Put(ctx, store, config.Checks, check(20)))
	_, err := config.Update(ctx, store, config.Checks, "default", "cpu", func(old *resource.CheckConfig) (*resource.CheckConfig, error) {
		return check(old.Interval + 1), nil
	})
	must(err)
	must(config.Delete(ctx, store, config.Checks, "default", "cpu"))
	must(config.Put(ctx, store, config.Users, &resource.User{Username: "bob", PasswordHash: "$2a$hidden"}))
	if err := config.Create(ctx, store, config.Users, &resource.User{Username: "bob"}); err == nil {
		t.Error("created twice")
	}

	want := []string{
		`ann create users /bob /`,
		`ann delete checks default/cpu /`,
		`ann update checks default/cpu /interval 20>21`,
		`ann update checks default/cpu /interval 10>20`,
		`ann create checks default/cpu /`,
	}
	entries := l.all(t, Query{})
	if len(entries) != len(want) {
		t.Errorf("%d entries, want %d: %+v", len(entries), len(want), entries)
	}
	for i, e := range entries[:min(len(entries), len(want))] {
		got := fmt.Sprintf("%s %s %s %s/%s ", e.User, e.Action, e.Resource, e.Namespace, e.Name)
		if c := e.Changes[0]; c.Path == "" {
			got += "/"
		} else {
			got += fmt.Sprintf("%s %s>%s", c.Path, c.Old, c.New)
		}
		if got != want[i] {
			t.Errorf("entry %d is %q, want %q", i, got, want[i])
		}
		if e.Remote != "192.0.2.1:5" || e.Request != "PUT /x" || e.Time.Year() != 2026 || e.ID == 0 {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	if text, _ := json.Marshal(entries); bytes.Contains(text, []byte("hidden")) {
		t.Errorf("a secret is in the log: %s", text)
	}
}

// TestRead has more entries than a block.
func TestRead(t *testing.T) {
	l, _, now := newLog(t, "")
	begin := *now
	const n = block + 250
	for i := range n {
		*now = begin.Add(time.Duration(i) * time.Second)
		l.Record(t.Context(), Entry{User: fmt.Sprint("u", i%5), Action: "update", Resource: "checks", Namespace: fmt.Sprint("ns", i%2), Name: fmt.Sprint(i)})
	}
	for _, tc := range []struct {
		q     Query
		want  int
		first string
	}{
		{Query{}, n, fmt.Sprint(n - 1)},
		{Query{User: "u0"}, n / 5, fmt.Sprint(n - 5)},
		{Query{Namespace: "ns0", User: "u0"}, n / 10, fmt.Sprint(n - 10)},
		{Query{Name: "3"}, 1, "3"},
		{Query{Resource: "handlers"}, 0, ""},
		{Query{Action: "delete"}, 0, ""},
		{Query{Since: begin.Add((n - 10) * time.Second)}, 10, fmt.Sprint(n - 1)},
		{Query{Until: begin.Add(9 * time.Second)}, 10, "9"},
		{Query{Since: begin.Add(5 * time.Second), Until: begin.Add(9 * time.Second)}, 5, "9"},
	} {
		got := l.all(t, tc.q)
		if len(got) != tc.want || tc.want > 0 && got[0].Name != tc.first {
			t.Errorf("%+v: %d entries, want %d from %s on", tc.q, len(got), tc.want, tc.first)
		}
	}

	// In pages.
	q, seen := Query{Limit: 7, User: "u1"}, 0
	for {
		entries, next, err := l.Read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if want := fmt.Sprint(n - 4 - 5*seen); e.Name != want {
				t.Fatalf("entry %d is %s, want %s", seen, e.Name, want)
			}
			seen++
		}
		if next == 0 {
			break
		}
		q.Before = next
	}
	if seen != n/5 {
		t.Errorf("pages have %d entries, want %d", seen, n/5)
	}
}

// TestFile moves the file away between two writes.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.json")
	l, _, _ := newLog(t, path)
	record := func(name string) {
		l.Record(t.Context(), Entry{User: "ann", Action: "delete", Resource: "events", Name: name})
	}
	record("one")
	record("two")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	record("three")
	for file, want := range map[string][]string{path + ".1": {"one", "two"}, path: {"three"}} {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for _, name := range want {
			var e Entry
			if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || e.Name != name {
				t.Errorf("%s: line %q, want %s", file, lines.Text(), name)
			}
		}
		if lines.Scan() {
			t.Errorf("%s has another line: %s", file, lines.Text())
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file mode %v %v", info.Mode(), err)
	}
}
