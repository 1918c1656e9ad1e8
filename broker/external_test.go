package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/internal/testnats"
)

// logText is a log that a test reads.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// connect starts a broker on NATS servers.
func connect(t *testing.T, name string, e broker.External) *broker.Broker {
	t.Helper()
	log := &logText{}
	b, err := broker.New(broker.Options{
		Name: name, External: &e, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), testnats.Password) {
			t.Errorf("the log of %s has the password:\n%s", name, log)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return b
}

func openShared(t *testing.T, b *broker.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Metadata: map[string]string{"of": b.Name()}}
	if _, err := b.OpenStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
}

// write writes messages, each until it is taken, and returns the number of the last one.
func writeAll(t *testing.T, b *broker.Broker, texts ...string) (seq uint64) {
	t.Helper()
	for _, text := range texts {
		testbroker.Eventually(t, func() (err error) {
			seq, err = b.Write(t.Context(), &nats.Msg{Subject: "s." + text, Data: []byte(text)})
			return err
		})
	}
	return seq
}

// read returns the messages of a stream in order, up to the last one.
func read(t *testing.T, b *broker.Broker) string {
	t.Helper()
	var got []string
	testbroker.Eventually(t, func() error {
		got = nil
		return b.Each(t.Context(), "S", 1, func(m *broker.Message) error {
			if m.Subject != "s."+string(m.Data) {
				return fmt.Errorf("message %s has the subject %s", m.Data, m.Subject)
			}
			got = append(got, string(m.Data))
			return nil
		})
	})
	return strings.Join(got, " ")
}

// TestExternalServer: two backends share a single server, and a system with another prefix sees nothing of them.
func TestExternalServer(t *testing.T) {
	servers := testnats.New(t, 1, testnats.Options{})
	a := connect(t, "a", broker.External{URLs: servers.SignedIn()})
	b := connect(t, "b", broker.External{URLs: servers.SignedIn()})
	other := connect(t, "other", broker.External{URLs: servers.SignedIn(), Prefix: "other"})
	for _, one := range []*broker.Broker{a, b, other, a} {
		openShared(t, one)
		if one.Alone() || one.Err() != nil {
			t.Errorf("%s: alone %v, %v", one.Name(), one.Alone(), one.Err())
		}
	}
	writeAll(t, a, "1", "2")
	writeAll(t, other, "x")
	if seq := writeAll(t, b, "3"); seq != 3 {
		t.Errorf("the third message has number %d", seq)
	}
	if got := read(t, b); got != "1 2 3" {
		t.Errorf("b reads %s", got)
	}
	if got := read(t, other); got != "x" {
		t.Errorf("the other system reads %s", got)
	}
	if seq, err := a.Newest(t.Context(), "S", "s.2"); seq != 2 || err != nil {
		t.Errorf("the newest of a subject is %d, %v", seq, err)
	}
	if seq, id, err := a.NewestWrite(t.Context(), "S", "s.2"); seq != 2 || id == "" || err != nil {
		t.Errorf("the newest write of a subject is %d, %q, %v", seq, id, err)
	}
	st, err := a.StreamStatus(t.Context(), "S")
	if err != nil || st.Leader != servers.Name(0) || st.Copies != 1 || !a.Leads("S") {
		t.Errorf("the stream stands %+v, %v", st, err)
	}
	stop, err := b.Bus().Subscribe("question", func(reply string, data []byte) {
		if err := b.Bus().Publish(reply, append([]byte("answer to "), data...)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	testbroker.Eventually(t, func() error { // until the server knows of the subscription
		answer, err := a.Bus().Request(ctx, "question", []byte("a"))
		if err == nil && string(answer) != "answer to a" {
			t.Errorf("the answer is %s", answer)
		}
		return err
	})
	if _, err := other.Bus().Request(ctx, "question", nil); !errors.Is(err, broker.ErrNoListener) {
		t.Errorf("the other system gets %v", err)
	}
}

// TestExternalCluster kills a server and restarts all: nothing that was acknowledged is lost, and readers go on.
func TestExternalCluster(t *testing.T) {
	servers := testnats.New(t, 3, testnats.Options{})
	a := connect(t, "a", broker.External{URLs: servers.SignedIn()})
	b := connect(t, "b", broker.External{URLs: servers.SignedIn()[:1]})
	var opening sync.WaitGroup
	for _, one := range []*broker.Broker{a, b} { // at the same moment
		opening.Go(func() { openShared(t, one) })
	}
	opening.Wait()
	var st broker.Group
	testbroker.Eventually(t, func() (err error) {
		if st, err = a.StreamStatus(t.Context(), "S"); err == nil && (st.Copies != 3 || len(st.Replicas) != 2) {
			err = fmt.Errorf("the stream stands %+v", st)
		}
		return err
	})
	following := b.Follow(broker.FollowOptions{Stream: "S", From: 1})
	defer following.Stop()
	follows := func(want string) {
		t.Helper()
		select {
		case m := <-following.Messages:
			if string(m.Data) != want {
				t.Fatalf("the next message is %s, want %s", m.Data, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s does not come", want)
		}
	}
	writeAll(t, a, "1")
	follows("1")
	victim := servers.Index(st.Leader)
	servers.Kill(victim)
	writeAll(t, a, "2", "3")
	follows("2")
	follows("3")
	servers.Start(victim)
	for i := range 3 {
		servers.Kill(i)
	}
	testbroker.Eventually(t, func() error {
		if a.Err() == nil {
			return errors.New("it does not notice that the servers are gone")
		}
		return nil
	})
	for i := range 3 {
		servers.Start(i)
	}
	writeAll(t, b, "4")
	follows("4")
	if got := read(t, a); got != "1 2 3 4" {
		t.Errorf("a reads %s", got)
	}
}

// TestExternalRefuses: what cannot work is an error that names the step and the thing, without the password.
func TestExternalRefuses(t *testing.T) {
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "credentials")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	one := testnats.New(t, 1, testnats.Options{})
	bare := testnats.New(t, 1, testnats.Options{WithoutJetStream: true})
	small := testnats.New(t, 1, testnats.Options{MaxPayload: "1MB"})
	limited := testnats.New(t, 1, testnats.Options{Accounts: `
accounts { A { jetstream: enabled, users: [ { user: lapwing, password: "` + testnats.Password + `",
  permissions: { publish: [ "lapwing.>" ], subscribe: [ "lapwing.>" ] } } ] } }
`})
	wrong := strings.ReplaceAll(one.SignedIn()[0], testnats.Password, "wr0ng-secret")
	for what, tc := range map[string]struct {
		e    broker.External
		want string
	}{
		"no URL":              {broker.External{}, "no URL"},
		"no scheme":           {broker.External{URLs: []string{"host:4222"}}, "URL 1 of 1 is not like"},
		"a broken URL":        {broker.External{URLs: []string{one.URLs()[0], "nats://u:wr0ng-secret/x@host:1"}}, "URL 2 of 2 is not like"},
		"another scheme":      {broker.External{URLs: []string{"https://u:wr0ng-secret@host:1"}}, "is not like"},
		"a wrong prefix":      {broker.External{URLs: one.URLs(), Prefix: "a.b"}, `"a.b" has other characters`},
		"two credentials":     {broker.External{URLs: one.SignedIn(), CredentialsFile: file("")}, "leave one of them out"},
		"a wrong password":    {broker.External{URLs: []string{wrong}}, "connect to NATS at 127.0.0.1"},
		"a missing file":      {broker.External{URLs: one.URLs(), CredentialsFile: "/nowhere"}, "read the credentials for NATS"},
		"an empty file":       {broker.External{URLs: one.URLs(), CredentialsFile: file("user: x")}, `no lines "user: NAME"`},
		"no user":             {broker.External{URLs: one.URLs()}, "Authorization Violation"},
		"no JetStream":        {broker.External{URLs: bare.SignedIn()}, "use JetStream of NATS at 127.0.0.1"},
		"small messages":      {broker.External{URLs: small.SignedIn()}, "set max_payload on all servers"},
		"too few rights":      {broker.External{URLs: limited.SignedIn()}, "$JS.API.INFO"},
		"too few servers":     {broker.External{URLs: one.SignedIn(), Replicas: 3}, "too few servers for 3 copies"},
		"too many copies":     {broker.External{URLs: one.SignedIn(), Replicas: 6}, "from 1 to 5"},
		"a server in process": {broker.External{URLs: one.SignedIn()}, "no servers of their own"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			opts := broker.Options{Name: "a", External: &tc.e}
			if what == "a server in process" {
				opts.Cluster = &broker.Cluster{}
			}
			b, err := broker.New(opts)
			if err == nil {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err = b.Start(ctx); err == nil {
					_, err = b.OpenStream(ctx, jetstream.StreamConfig{Name: "R", Subjects: []string{"r"}})
				}
				if err := b.Stop(); err != nil {
					t.Error(err)
				}
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %s", err, tc.want)
			}
			if text := fmt.Sprint(err); strings.Contains(text, testnats.Password) || strings.Contains(text, "wr0ng") {
				t.Errorf("the error has the password: %s", text)
			}
		})
	}
}

// TestExternalCredentials: a file with a user and a password, which is read again for each connection.
func TestExternalCredentials(t *testing.T) {
	servers := testnats.New(t, 1, testnats.Options{})
	name := filepath.Join(t.TempDir(), "credentials")
	text := "user: " + testnats.User + "\npassword: " + testnats.Password + "\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := connect(t, "a", broker.External{URLs: servers.URLs(), CredentialsFile: name})
	openShared(t, b)
	writeAll(t, b, "1")
	servers.Kill(0)
	servers.Start(0)
	writeAll(t, b, "2")
	if got := read(t, b); got != "1 2" {
		t.Errorf("it reads %s", got)
	}
}

// TestExternalWaits: a start waits for servers that do not answer yet, and Stop ends the wait.
func TestExternalWaits(t *testing.T) {
	servers := testnats.New(t, 1, testnats.Options{})
	servers.Kill(0)
	waiting := make(chan string, 100)
	b, err := broker.New(broker.Options{
		Name: "a", External: &broker.External{URLs: servers.SignedIn()}, Waiting: func(what string) { waiting <- what },
	})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- b.Start(t.Context()) }()
	what := <-waiting
	if !strings.Contains(what, "waiting for NATS at 127.0.0.1") || strings.Contains(what, testnats.Password) {
		t.Errorf("it waits for %q", what)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-started; err == nil {
		t.Error("the start succeeds")
	}
}
