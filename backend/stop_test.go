package backend

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
)

// free fails the test unless an address can be bound.
func free(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	_ = l.Close()
}

// TestStopBeforeStart: it closes the ports, may be repeated, and ends the backend for good.
func TestStopBeforeStart(t *testing.T) {
	b, err := New(quickOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	free(t, b.APIAddr().String())
	free(t, b.AgentAddr().String())
	if err := b.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "it was stopped") {
		t.Errorf("start after stop: %v", err)
	}
}

// TestStopEndsAStartThatWaits has a start wait for space that never comes.
func TestStopEndsAStartThatWaits(t *testing.T) {
	opts := quickOptions(t)
	opts.Log.MinFree = 1 << 60
	waits := make(chan struct{})
	var once sync.Once
	opts.Logger = slog.New(slog.NewTextHandler(writer(func(line []byte) {
		if bytes.Contains(line, []byte("disk full")) {
			once.Do(func() { close(waits) })
		}
	}), nil))
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- b.Start(context.Background()) }()
	<-waits
	if at := b.Starting(); !strings.Contains(at.Error(), "disk full") {
		t.Errorf("the start is at %v", at)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := <-started; !errors.Is(err, context.Canceled) {
		t.Errorf("the start ends with %v", err)
	}
	free(t, b.APIAddr().String())
}

// TestStopDoesNotWaitForTheTurn: a Stop without time is over although a start has not ended.
func TestStopDoesNotWaitForTheTurn(t *testing.T) {
	b, err := New(quickOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.turn.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Stop(ctx); err == nil || !strings.Contains(err.Error(), "did not end in time; it was at: the backend is starting: ports") {
		t.Errorf("stop: %v", err)
	}
	b.turn.give()
	if err := b.Stop(ctx); err != nil {
		t.Errorf("stop when the turn is free: %v", err)
	}
}

// TestNewUndoesWhatItDid: the API's port is free again when that of agents is in use.
func TestNewUndoesWhatItDid(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	opts := quickOptions(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts.APIListenAddress = l.Addr().String()
	opts.AgentPort = busy.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	if _, err := New(opts); err == nil {
		t.Fatal("a port in use is bound")
	}
	free(t, opts.APIListenAddress)
}

// writer is an io.Writer that passes what is written to a function.
type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
