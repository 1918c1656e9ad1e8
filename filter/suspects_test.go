package filter

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestSuspectsAreForgotten has old deaths.
func TestSuspectsAreForgotten(t *testing.T) {
	p, err := NewPool(PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := func(namespace string, key sourceKey, died, aside bool) {
		t.Helper()
		if gotDied, why := p.suspicion(namespace, key); gotDied != died || (why == errAside) != aside {
			t.Errorf("of %x in %s: suspect %v, %v", key[:1], namespace, gotDied, why)
		}
	}
	by := Definer{"filter", "ours", "f"}
	once, thrice := keyOf(kindFilter, nil, "once"), keyOf(kindFilter, nil, "thrice")
	p.blame(by, "once", once, "")
	for range maxDeaths {
		p.blame(by, "thrice", thrice, "")
	}
	f("ours", once, true, false)
	f("ours", thrice, true, true)
	f("theirs", once, false, false)
	f("theirs", thrice, false, false)
	if !p.keptApart("ours") || p.keptApart("theirs") {
		t.Error("a namespace with four deaths keeps to the quick lanes, or another one does not")
	}
	for _, s := range p.suspects {
		for i := range s.deaths {
			s.deaths[i] = time.Now().Add(-deathMemory - time.Second)
		}
	}
	p.swept = time.Now()
	f("ours", once, false, false)
	f("ours", thrice, true, true)
	p.swept = time.Time{}
	f("ours", once, false, false)
	if len(p.suspects) != 1 || p.suspected.Load() != 1 {
		t.Errorf("%d suspects are left, %d are counted", len(p.suspects), p.suspected.Load())
	}
	p.Release(p.SetAside()[0])
	f("ours", thrice, false, false)
	if p.suspected.Load() != 0 {
		t.Error("suspects are left")
	}
}

// TestLossesOutliveSuspects: an author changes a source that has just killed workers. The namespace stays apart for a
// time.
func TestLossesOutliveSuspects(t *testing.T) {
	p, err := NewPool(PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key := keyOf(kindFilter, nil, "deadly")
	for range maxLosses {
		p.blame(Definer{"filter", "ours", "f"}, "deadly", key, "")
	}
	p.forget("ours", key)
	if !p.keptApart("ours") || p.keptApart("theirs") {
		t.Error("the namespace is back on the quick lanes, or another one is off them")
	}
	l := p.losses["ours"]
	l.since, l.apart = time.Now().Add(-2*time.Minute), time.Now().Add(-time.Second)
	p.swept = time.Time{}
	if p.keptApart("ours") || len(p.losses) != 0 || p.losing.Load() != 0 {
		t.Errorf("%d losses are left, %d are counted", len(p.losses), p.losing.Load())
	}
}

// TestAnswersEndFailing has one slot that cannot start a worker, and another that answers.
func TestAnswersEndFailing(t *testing.T) {
	p, err := NewPool(PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &slot{pool: p, queue: p.queues[laneQuick]}
	reply := func(with answered) { s.reply(&asked{answer: make(chan answered, 1)}, with) }
	s.failed(errors.New("no memory"))
	if reply(answered{err: errNoPool}); p.Err() == nil {
		t.Error("it is forgotten that no worker can be started")
	}
	if reply(answered{body: []byte{1}}); p.Err() != nil {
		t.Errorf("while questions are answered: %v", p.Err())
	}
}

// TestStopEndsHello stops a pool whose workers never say hello.
func TestStopEndsHello(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has a shell script for a worker")
	}
	mute := filepath.Join(t.TempDir(), "mute")
	if err := os.WriteFile(mute, []byte("#!/bin/sh\nexec sleep 100\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.program = mute
	started := make(chan error)
	go func() { started <- p.Start(t.Context()) }()
	begun := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.processes) > 0
	}
	for deadline := time.Now().Add(time.Minute); !begun(); time.Sleep(time.Millisecond) { // pause between polls
		if time.Now().After(deadline) {
			t.Fatal("no worker was started")
		}
	}
	begin := time.Now()
	go p.Stop() //nolint:errcheck // it has no errors
	if err := <-started; err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took >= helloTime { // as long as without Stop
		t.Errorf("it took %s", took)
	}
	if _, err := p.startProcess(); !errors.Is(err, errStopped) {
		t.Errorf("a process can be started afterwards: %v", err)
	}
}
