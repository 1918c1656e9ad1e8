package ctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// Pauses before a broken live stream is opened again. They double from the first to the last.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// watcher prints the current events, then each change. It remembers what it has printed, so that after a broken
// connection it prints only the missed changes.
type watcher struct {
	*invocation
	kind  *kind
	match *selector.Selector
	table *table   // of the events before the first sync; later lines use its widths
	all   []column // of the rows; the table may have fewer
	lines *bufio.Writer
	board *board // in terminals, in place of the table and the lines

	opts     client.StreamOptions
	position string
	resumed  bool // the present stream brings only missed changes

	moved    time.Time // when a stream last went on at another backend without a pause
	synced   bool      // the table is printed
	pass     int       // number of streams opened
	received bool      // the present stream has brought something
	seen     map[eventKey]sighting
	seed     maphash.Seed
}

type eventKey struct{ namespace, entity, check string }

// sighting is when an event was last received, and a hash of it.
type sighting struct {
	pass int
	hash uint64
}

// watchEvents runs until ctx ends, which is no error, or the server refuses.
func watchEvents(ctx context.Context, s *invocation, k *kind, namespace string, opts client.ListOptions) error {
	match, err := selector.Parse(opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return err
	}
	w := &watcher{
		invocation: s,
		match:      match,
		opts:       client.StreamOptions{FieldSelector: opts.FieldSelector, LabelSelector: opts.LabelSelector},
		kind:       k,
		lines:      bufio.NewWriter(s.out),
		seen:       map[eventKey]sighting{},
		seed:       maphash.MakeSeed(),
	}
	w.opts.Position = &w.position
	if w.table, err = s.newTable(k, nil, namespace == ""); err != nil {
		return err
	}
	w.all = w.table.columns
	if s.format == formatTabular && s.drawable() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		w.board = newBoard(s, k, namespace, cancel)
		defer w.board.stop()
	}
	w.table.rows = w.chosen(nil)
	pause := firstPause
	// Lines only align if columns are wide enough from the start.
	w.table.widths = make([]int, len(w.table.columns))
	copy(w.table.widths, []int{12, 12, 24, 8, 6, 8, 4})
	for {
		w.pass++
		w.received = false
		if !w.synced && w.format == formatTabular {
			clear(w.seen)
			w.table.rows = nil
			w.board.clear()
		}
		w.resumed = w.synced && w.position != ""
		if !w.resumed {
			w.position = ""
		}
		err := s.client.StreamWith(ctx, namespace, w.opts, func(ev client.StreamEvent) error { return w.handle(ctx, ev) })
		if ctx.Err() != nil {
			return nil
		}
		if fatal := w.fatal(err); fatal != nil {
			return fatal
		}
		if w.received {
			pause = firstPause
			if urls := s.client.URLs(); len(urls) > 1 && time.Since(w.moved) > lastPause {
				w.moved = time.Now()
				w.tell("live stream interrupted: %v; it goes on at %s", err, urls[0])
				continue
			}
		}
		w.tell("live stream interrupted: %v; trying again in %v", err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, lastPause)
	}
}

// tell prints a message, which is not output.
func (w *watcher) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !w.board.tell(text) {
		fmt.Fprintln(w.errOut, text)
	}
}

// fatal returns the error that ends the watch, or nil to try again.
func (w *watcher) fatal(err error) error {
	var refused *client.Error
	var printing *printError
	switch {
	case errors.As(err, &printing):
		return printing.err
	case errors.As(err, &refused) && refused.Status == 404:
		return hint(err, "The backend has no live stream of events; it may be Sensu Go. Use 'lapwing event list'.")
	case errors.As(err, &refused) && refused.Status < 500:
		return err
	case w.pass == 1 && !w.received:
		return err // it never worked: a wrong URL, and not a restart
	}
	return nil
}

// printError is a failure to print, not a failure of the stream.
type printError struct{ err error }

func (e *printError) Error() string { return e.err.Error() }

// handle processes one message of the stream.
func (w *watcher) handle(ctx context.Context, ev client.StreamEvent) error {
	w.received = true
	w.board.tell("")
	key := eventKey{ev.Namespace, ev.Entity, ev.Check}
	var err error
	switch ev.Type {
	case client.StreamEventPut:
		hash := maphash.Bytes(w.seed, ev.Data)
		old, known := w.seen[key]
		if !w.match.Match(selector.Event(ev.Event)) {
			// The server selects too, but its answer may be older than a change.
			if delete(w.seen, key); known && w.board != nil {
				w.board.remove(key)
			} else if known {
				err = w.show(ev.Data)
			}
			break
		}
		w.seen[key] = sighting{w.pass, hash}
		switch changed := !known || old.hash != hash; {
		case changed && w.board != nil:
			w.board.put(key, &ev)
		case changed:
			err = w.show(ev.Data)
		}
	case client.StreamEventDelete:
		if _, known := w.seen[key]; known {
			delete(w.seen, key)
			err = w.showGone(ctx, key)
		}
	case client.StreamReset:
		w.resumed = false
	case client.StreamSynced:
		err = w.sync()
	}
	if err == nil && w.lines.Buffered() > 0 && w.synced {
		err = w.lines.Flush()
	}
	if err != nil {
		return &printError{err}
	}
	return nil
}

// sync ends the list of current events: earlier events that are not in it were deleted while disconnected.
func (w *watcher) sync() error {
	if !w.synced {
		w.synced = true
		if w.board != nil {
			w.board.start()
			return nil
		}
		if w.format == formatTabular {
			w.table.write(w.lines)
			w.table.rows = nil
		}
		return w.lines.Flush()
	}
	for key, s := range w.seen {
		if s.pass == w.pass || w.resumed {
			continue
		}
		delete(w.seen, key)
		if err := w.showDeleted(key); err != nil {
			return err
		}
	}
	return nil
}

// chosen returns rows without the cells of columns that only wide tables have.
func (w *watcher) chosen(rows [][]string) [][]string {
	t := &table{columns: w.all, rows: rows}
	if !w.wide {
		t.narrowed()
	}
	w.table.columns = t.columns
	return t.rows
}

func (w *watcher) show(raw json.RawMessage) error {
	switch w.format {
	case formatJSON:
		var line bytes.Buffer
		if err := json.Compact(&line, unescapeHTML(raw)); err != nil {
			return err
		}
		line.WriteByte('\n')
		_, err := line.WriteTo(w.lines)
		return err
	case formatWrappedJSON:
		return writeWrappedJSON(w.lines, w.kind, raw, "")
	case formatYAML:
		w.lines.WriteString("---\n")
		return writeYAML(w.lines, w.kind, raw)
	}
	rows, err := w.kind.rows(raw)
	if err != nil {
		return err
	}
	row := w.chosen([][]string{rows[0][:len(w.all)]})[0]
	if !w.synced {
		w.table.rows = append(w.table.rows, row)
		return nil
	}
	for i, cell := range row {
		// One event is one line here, however long its output is.
		row[i], _, _ = strings.Cut(strings.TrimSpace(cell), "\n")
	}
	w.table.writeRow(w.lines, row, w.table.dimmed(row))
	return nil
}

// showGone prints that an event was deleted. If it only left the selection, it prints the event as it is now: users
// wait for that.
func (w *watcher) showGone(ctx context.Context, key eventKey) error {
	if w.match != nil && w.board == nil {
		raw, err := client.Get(ctx, w.client, w.kind.Kind, key.namespace, client.EventName(key.entity, key.check))
		if err == nil {
			return w.show(*raw)
		}
		if !errors.Is(err, client.ErrNotFound) {
			return err
		}
	}
	return w.showDeleted(key)
}

func (w *watcher) showDeleted(key eventKey) error {
	if w.board != nil {
		w.board.remove(key)
		return nil
	}
	switch w.format {
	case formatJSON, formatWrappedJSON:
		return json.NewEncoder(w.lines).Encode(deletedEvent{true, key.namespace, key.entity, key.check})
	case formatYAML:
		_, err := fmt.Fprintf(w.lines, "---\ndeleted: true\nnamespace: %q\nentity: %q\ncheck: %q\n", key.namespace, key.entity, key.check)
		return err
	}
	row := make([]string, len(w.all))
	row[0], row[1], row[2] = key.entity, key.check, "(deleted)"
	if len(row) > len(w.kind.columns) {
		row[len(row)-1] = key.namespace
	}
	w.table.writeRow(w.lines, w.chosen([][]string{row})[0], false)
	return nil
}

// deletedEvent is the JSON for a deletion.
type deletedEvent struct {
	Deleted   bool   `json:"deleted"`
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
}
