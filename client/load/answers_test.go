package load

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestAnswerBook: a turn that several agents answer counts once, and one agent may answer a turn again. The book
// forgets turns by age and by their number.
func TestAnswerBook(t *testing.T) {
	start := time.Unix(1000, 0)
	b := answerBook{limit: 4}
	note := func(after time.Duration, turn uint64, agent uint32, different, twice uint64) {
		t.Helper()
		b.note([]TurnAnswer{{turn, agent}}, start.Add(after))
		if b.different != different || b.twice != twice {
			t.Errorf("%d turns, %d answered twice, want %d and %d", b.different, b.twice, different, twice)
		}
	}
	note(0, 1, 7, 1, 0)
	note(0, 2, 7, 2, 0)
	note(1, 1, 7, 2, 0)
	note(2, 1, 8, 2, 1)
	note(3, 1, 9, 2, 1) // it is counted
	note(4, 1, 7, 2, 1)
	note(bookSpan, 3, 7, 3, 1)
	note(bookSpan, 2, 8, 3, 2) // of the older half
	note(bookSpan, 2, 9, 3, 2)
	note(2*bookSpan, 4, 7, 4, 2)
	note(2*bookSpan, 1, 9, 5, 2) // forgotten
	for turn := range uint64(100) {
		note(2*bookSpan+1, 100+turn, 7, 6+turn, 2)
		if n := len(b.young) + len(b.old); n > 8 {
			t.Fatalf("it remembers %d turns", n)
		}
	}
	note(2*bookSpan+1, 198, 8, 105, 3)
}

// fakeWorker is another process whose agents have answered turns.
type fakeWorker struct {
	worker
	answers []TurnAnswer
}

func (w *fakeWorker) snapshot() (Snapshot, error) {
	s := Snapshot{Answers: w.answers, Turns: TurnCounts{Answered: uint64(len(w.answers))}}
	w.answers = nil
	return s, nil
}

// TestAnsweredTwice: a turn that agents of two processes answer was answered twice. A turn that was given to an agent
// which did not answer, and then to another one, was not.
func TestAnsweredTwice(t *testing.T) {
	one, other := &fakeWorker{}, &fakeWorker{}
	s := &scenario.Scenario{Agents: []scenario.Agents{{Name: "a", Count: 2}}}
	r := run{opts: Options{Scenario: s}, watch: newWatcher(nil), workers: []worker{one, other}, report: &report.Report{}}
	for _, tc := range []struct {
		one, other       []TurnAnswer
		different, twice uint64
	}{
		{[]TurnAnswer{{1, 7}}, []TurnAnswer{{2, 8}}, 2, 0},
		{[]TurnAnswer{{3, 7}}, []TurnAnswer{{3, 8}}, 3, 1},
		{nil, []TurnAnswer{{1, 8}}, 3, 2},
		{[]TurnAnswer{{3, 7}, {1, 7}}, nil, 3, 2},
	} {
		one.answers, other.answers = tc.one, tc.other
		if _, err := r.sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.last.Turns; got.Different != tc.different || got.Twice != tc.twice {
			t.Errorf("%d turns, %d answered twice, want %d and %d", got.Different, got.Twice, tc.different, tc.twice)
		}
		if r.last.Answers != nil {
			t.Error("the answers are kept")
		}
	}
}

// TestGivenTwice: a turn of a killed agent that another agent gets and answers was answered once.
func TestGivenTwice(t *testing.T) {
	b := newFakeBackend(t)
	f := b.start(t, FleetOptions{Count: 2, AckDelay: time.Hour, Receipts: true})
	ends := map[string]*backendEnd{}
	for range 2 {
		end := <-b.conns
		ends[end.header.Get(wire.HeaderAgentName)] = end
	}
	until(func() bool { return f.measures.arrived.Load() == 2 })
	for i, a := range f.agents {
		ends[a.name].ask(t, 1, "a", 1)
		until(func() bool { return f.delayed.len() == i+1 })
	}
	f.kill(f.agents[0])
	f.sendDelayed(time.Now().Add(2 * time.Hour))
	ends["a-2"].answers(t, 1)
	until(func() bool { return f.measures.answers.count() == 1 })
	var book answerBook
	s := f.Snapshot()
	book.note(s.Answers, time.Now())
	if s.Turns.Received != 2 || book.different != 1 || book.twice != 0 {
		t.Errorf("counted %+v; %d turns were answered, %d twice", s.Turns, book.different, book.twice)
	}
}

// logTo gives a fleet a turn log, and returns a function that ends it and reads its lines.
func logTo(t *testing.T, f *Fleet) (lines func() []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "turns")
	log, err := openTurnLog(path)
	if err != nil {
		t.Fatal(err)
	}
	f.turnLog = log
	return func() []string {
		t.Helper()
		if err := log.close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.SplitAfter(string(text), "\n")[:strings.Count(string(text), "\n")]
	}
}

// TestUnacknowledgedIsNotAnswered: a result in the lapwing protocol answers its turn when the backend acknowledges it.
// A killed agent has not answered the others.
func TestUnacknowledgedIsNotAnswered(t *testing.T) {
	b := newFakeBackend(t)
	f := newTestFleet(t, FleetOptions{Backends: []string{b.url()}})
	lines := logTo(t, f)
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := <-b.conns
	for tick := range int64(2) {
		conn.ask(t, tick, "a", tick)
		conn.answers(t, 1)
		if tick == 0 {
			conn.acknowledge(t)
			until(func() bool { return f.measures.answers.count() == 1 })
		}
	}
	f.kill(f.agents[0])
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	s := f.Snapshot()
	if got := lines(); len(got) != 1 || s.Turns.Answered != 1 || len(s.Answers) != 1 || s.Created != 2 {
		t.Errorf("counted %+v, answers %v of %d results; the log is %q", s.Turns, s.Answers, s.Created, got)
	}
}

// TestPartlyWrittenIsNotAnswered: receipts, and results in Sensu's protocol, of which the socket has not taken all
// are no answers. They are when it has, but a killed agent loses them.
func TestPartlyWrittenIsNotAnswered(t *testing.T) {
	long := strings.Repeat("x", 1<<18)
	for name, protocol := range map[string]string{"receipts": ProtocolLapwing, "results": ProtocolSensu} {
		for _, killed := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", killed"}[killed], func(t *testing.T) {
				ours, theirs := tcpPair(t)
				f := newTestFleet(t, FleetOptions{Protocol: protocol, Receipts: protocol == ProtocolLapwing})
				lines := logTo(t, f)
				a := f.agents[0]
				a.conn, a.configured, a.lapwing = wire.NewServerConn(ours, nil, 1<<20), true, protocol == ProtocolLapwing
				defer a.conn.Abort()
				due := []result{{check: &check{name: "c"}, n: 1, turn: turn{text: "1 " + long, tick: 1}}}
				a.mu.Lock()
				conn, complete := a.conn, 0
				for { // the other end does not read: once the socket is full
					if err := a.respondNow(conn, due); err != nil {
						t.Fatal(err)
					}
					if !a.writing.IsZero() {
						break
					}
					complete++
				}
				if n := f.measures.answers.count(); n != complete {
					t.Errorf("%d answers, want %d", n, complete)
				}
				a.mu.Unlock()
				want := complete
				if killed {
					f.kill(a)
				} else {
					want++
					go func() {
						for buf := make([]byte, 1<<20); ; {
							if _, err := theirs.Read(buf); err != nil {
								return
							}
						}
					}()
				}
				f.running.Wait()
				if n := f.measures.answers.count(); n != want || len(lines()) != want {
					t.Errorf("%d answers, want %d", n, want)
				}
			})
		}
	}
}

// tcpPair returns the ends of a connection.
func tcpPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// count returns how many answers there were so far.
func (l *answerList) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.total)
}
