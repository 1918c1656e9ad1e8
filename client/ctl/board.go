package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// redrawEvery is the shortest time between two drawings of a board: many events may arrive in a moment.
const redrawEvery = 250 * time.Millisecond

// board is what "event list --watch" shows in a terminal: a row for each event, the worst first, drawn in place. The
// watcher puts and removes events, and a goroutine of the board draws them. A nil board shows nothing.
type board struct {
	s         *invocation
	kind      *kind
	namespace string // empty for all
	quit      func() // ends the watch

	mu     sync.Mutex // guards what is below
	events map[eventKey]boardEvent
	notice string // about the connection
	drawn  bool   // the screen shows all of this
	widths []int  // of columns, which do not shrink: they would jump

	open    bool // the screen is open; only the watcher asks
	stopped chan struct{}
	done    chan struct{}
}

type boardEvent struct {
	key      eventKey
	status   uint32
	silenced bool
	raw      json.RawMessage
}

func newBoard(s *invocation, k *kind, namespace string, quit func()) *board {
	return &board{s: s, kind: k, namespace: namespace, quit: quit, events: map[eventKey]boardEvent{}}
}

// start opens the screen, and draws until stop.
func (b *board) start() {
	b.open = true
	b.stopped, b.done = make(chan struct{}), make(chan struct{})
	go b.run(b.s.openScreen())
}

// stop closes the screen.
func (b *board) stop() {
	if b.open {
		close(b.stopped)
		<-b.done
	}
}

func (b *board) run(scr *screen) {
	defer close(b.done)
	defer scr.close()
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	var last time.Time
	for {
		width, height := scr.size()
		var lines []string
		b.mu.Lock()
		if now := time.Now(); !b.drawn || now.Sub(last) >= time.Second { // ages change each second
			lines = b.view(now, width, height)
			b.drawn, last = true, now
		}
		b.mu.Unlock()
		if lines != nil {
			scr.draw(lines)
		}
		select {
		case <-tick.C:
		case key := <-scr.keys:
			if quits(key) {
				b.quit()
			}
		case <-b.stopped:
			return
		}
	}
}

func (b *board) put(key eventKey, ev *client.StreamEvent) {
	check := eventCheck(ev.Event)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events[key] = boardEvent{key, check.Status, check.IsSilenced, bytes.Clone(ev.Data)}
	b.drawn = false
}

func (b *board) remove(key eventKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.events, key)
	b.drawn = false
}

func (b *board) clear() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.events)
	b.drawn = false
}

// tell shows a message, or removes it if it is empty. It returns false if there is no screen.
func (b *board) tell(notice string) bool {
	if b == nil || !b.open {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.notice != notice {
		b.notice, b.drawn = notice, false
	}
	return true
}

// view returns the screen's lines. The caller holds the lock.
func (b *board) view(now time.Time, width, height int) []string {
	events := make([]boardEvent, 0, len(b.events))
	var ok, warning, critical, unknown, silenced int
	for _, e := range b.events {
		events = append(events, e)
		switch e.status {
		case 0:
			ok++
		case 1:
			warning++
		case 2:
			critical++
		default:
			unknown++
		}
		if e.silenced {
			silenced++
		}
	}
	slices.SortFunc(events, func(x, y boardEvent) int {
		return cmp.Or(cmp.Compare(severity(x.status), severity(y.status)), cmp.Compare(x.key.namespace, y.key.namespace),
			cmp.Compare(x.key.entity, y.key.entity), cmp.Compare(x.key.check, y.key.check))
	})
	where := "namespace " + b.namespace
	if b.namespace == "" {
		where = "all namespaces"
	}
	counts := fmt.Sprintf("Events %d   critical %d   warning %d   unknown %d   ok %d   silenced %d",
		len(events), critical, warning, unknown, ok, silenced)
	lines := []string{
		paint(b.s.color, bold, cut(fmt.Sprintf("%s   %s   %s   key q quits", b.s.url, where, now.Format("15:04:05")), width)),
	}
	lines = append(lines, wrapValues(counts, width)...)
	lines = append(lines, paint(b.s.color && b.notice != "", red, cut(printable(b.notice), width)))
	room := max(0, height-len(lines)-3) // the titles, the rule and the line about others
	var shown []json.RawMessage
	for _, e := range events[:min(room, len(events))] {
		shown = append(shown, e.raw)
	}
	t, err := b.s.newTable(b.kind, shown, b.namespace == "")
	if err != nil {
		return append(lines, paint(b.s.color, red, cut("Error: "+printable(err.Error()), width)))
	}
	if !b.s.wide {
		t.narrowed()
	}
	t.cut, t.widths = width, b.widths
	t.firstLines()
	t.measure()
	b.widths = slices.Clone(t.widths)
	var text strings.Builder
	w := bufio.NewWriter(&text)
	t.write(w)
	w.Flush()
	lines = append(lines, strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
	if more := len(events) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("  … and %d more", more))
	}
	return lines
}
