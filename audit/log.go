// Package audit keeps who changed what: an entry for each definition that a user wrote or deleted, with the fields that
// differ, for each event that a user deleted, and for each check that a user started.
//
// The API writes entries before it answers (Log.Record) and reads them (Log.Read); config reports writes (Log.Written).
// Entries are in a stream of the broker, so all backends have the same ones; a backend can also write them to a file as
// lines of JSON. The stream is bounded by age and size: the oldest entries go first. Secrets do not get in; see secret.
//
// An entry follows its change in a second step. If it cannot be kept, the backend logs it in full as an error and the
// change stays. Who may read the log is up to the API.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/config"
)

const (
	streamName = "audit"
	subject    = "audit"
	// block is how many entries are read at a time.
	block = 500
	// readWait bounds the wait for a block.
	readWait = 5 * time.Second
	// recordTimeout bounds storing an entry. The request that caused it may have less time left, or its client may be
	// gone; the change was made all the same. In a cluster it takes some seconds until there is a new leader, and the answer
	// must come before the server ends the request.
	recordTimeout        = 5 * time.Second
	clusterRecordTimeout = 8 * time.Second
	// copyWait is how long a read waits for this backend's copy of the log to have all entries, looking every copyPoll.
	copyWait = 2 * time.Second
	copyPoll = 50 * time.Millisecond
)

// Options configures a Log. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	Broker *broker.Broker
	// File gets a line of JSON for each entry of this backend; "" for no file. It may be moved away: the next entry
	// creates a new one.
	File string
	// MaxAge and MaxBytes bound what is kept.
	MaxAge   time.Duration
	MaxBytes int64
	// Now is the clock. Default time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Entry is one change. ID is set by the log and counts up.
type Entry struct {
	ID        uint64    `json:"id,omitempty"`
	Time      time.Time `json:"time"`
	User      string    `json:"user"`
	Remote    string    `json:"remote,omitempty"`  // address of the client
	Request   string    `json:"request,omitempty"` // method and path
	Action    string    `json:"action"`            // create, update, delete or execute
	Resource  string    `json:"resource"`          // plural, as in roles
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Changes   []Change  `json:"changes,omitempty"`
}

// Log is the audit log.
type Log struct {
	opts    Options
	log     *slog.Logger
	metrics metrics
	stream  jetstream.Stream
	mark    *broker.Mark

	mu   sync.Mutex // guards file
	file *os.File
}

type metrics struct {
	entries prometheus.Counter
	lost    prometheus.Counter
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options { return Options{MaxAge: 400 * 24 * time.Hour, MaxBytes: 1 << 30} }

// New checks the options.
func New(opts Options) (*Log, error) {
	if opts.Broker == nil {
		return nil, errors.New("audit: no broker")
	}
	defaults := DefaultOptions()
	opts.MaxAge = cmp.Or(opts.MaxAge, defaults.MaxAge)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaults.MaxBytes)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{opts: opts, log: opts.Logger.With("component", "audit"), metrics: metrics{
		entries: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_audit_entries_total", Help: "Entries written to the audit log."}),
		lost:    prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_audit_lost_total", Help: "Entries that the audit log or its file did not take; they are in the backend's log."}),
	}}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(l.metrics.entries, l.metrics.lost)
	}
	return l, nil
}

// Start opens the stream and the file.
func (l *Log) Start(ctx context.Context) error {
	stream, err := openStream(ctx, l.opts.Broker, l.opts.MaxAge, l.opts.MaxBytes)
	if err != nil {
		return err
	}
	l.stream = stream
	if l.mark, err = l.opts.Broker.Mark(streamName); err != nil {
		return err
	}
	if l.opts.File == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openFile()
}

// openStream makes the stream, unless it exists, and sets its bounds.
func openStream(ctx context.Context, b *broker.Broker, maxAge time.Duration, maxBytes int64) (jetstream.Stream, error) {
	stream, err := b.OpenStream(ctx, jetstream.StreamConfig{
		Name:        streamName,
		Description: "lapwing audit log",
		Subjects:    []string{subject},
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		MaxAge:      maxAge,
		MaxBytes:    maxBytes,
	})
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	return stream, nil
}

// Stop closes the file.
func (l *Log) Stop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Written keeps an entry for a write to config that has an author. A write that changes nothing leaves no entry.
func (l *Log) Written(ctx context.Context, w config.Write) {
	if w.Kind == config.Sessions.String() || w.Kind == config.Standings.String() {
		return // without an author, or without a change
	}
	e := Entry{
		User: w.User, Remote: w.Remote, Request: w.Request,
		Action: "update", Resource: w.Kind, Namespace: w.Namespace, Name: w.Name,
	}
	switch {
	case w.Old == nil:
		e.Action = "create"
	case w.New == nil:
		e.Action = "delete"
	}
	e.Changes = Diff(w.Old, w.New)
	hideSecrets(e.Changes, w.Kind, w.Old, w.New)
	if len(e.Changes) > 0 {
		l.Record(ctx, e)
	}
}

// Record keeps an entry, with the current time.
func (l *Log) Record(ctx context.Context, e Entry) {
	e.Time = l.opts.Now().UTC()
	timeout := recordTimeout
	if !l.opts.Broker.Alone() {
		timeout = clusterRecordTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	line, err := json.Marshal(&e)
	if limit := l.opts.Broker.MaxPayload(); err == nil && len(line) > limit {
		why, _ := json.Marshal(fmt.Sprintf("left out: the entry would have %d bytes, more than the %d that can be stored", len(line), limit))
		e.Changes = []Change{{New: why}}
		line, err = json.Marshal(&e)
	}
	if err == nil {
		err = l.publish(ctx, line)
	}
	if err == nil {
		err = l.writeLine(line)
	}
	if err != nil {
		l.metrics.lost.Inc()
		l.log.Error("cannot keep an audit entry", "err", err, "entry", string(line))
		return
	}
	l.metrics.entries.Inc()
}

func (l *Log) publish(ctx context.Context, line []byte) error {
	seq, err := l.opts.Broker.Write(ctx, &nats.Msg{Subject: subject, Data: line})
	if err != nil {
		return err
	}
	l.mark.Stored(seq)
	return nil
}

// Stored describes the audit log's stream to code that reads its files without the broker.
func Stored(maxAge time.Duration) blocks.Stream {
	defaults := DefaultOptions()
	return blocks.Stream{
		Name: streamName, Subject: subject, Dense: true, MaxAge: cmp.Or(maxAge, defaults.MaxAge), MaxBytes: defaults.MaxBytes,
	}
}

func (l *Log) openFile() error {
	f, err := os.OpenFile(l.opts.File, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open audit file: %w", err)
	}
	l.file = f
	return nil
}

// writeLine appends a line to the file, and creates a new file if the old one was moved away.
func (l *Log) writeLine(line []byte) error {
	if l.opts.File == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return errors.New("write audit file: the log is stopped")
	}
	if !l.inPlace() {
		_ = l.file.Close()
		if err := l.openFile(); err != nil {
			return err
		}
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write audit file: %w", err)
	}
	return nil
}

// inPlace reports whether the open file still has its name.
func (l *Log) inPlace() bool {
	open, err := l.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(l.opts.File)
	return err == nil && os.SameFile(open, named)
}

// Query selects entries. Zero fields select all.
type Query struct {
	User, Action, Resource, Namespace, Name string
	Since, Until                            time.Time
	// Where, if not nil, selects further.
	Where func(*Entry) bool
	// Before continues an earlier Read: only entries with smaller IDs.
	Before uint64
	// Limit bounds the entries returned. Required.
	Limit int
}

func (q *Query) fits(e *Entry) bool {
	for _, f := range [...]struct{ want, have string }{
		{q.User, e.User}, {q.Action, e.Action}, {q.Resource, e.Resource}, {q.Namespace, e.Namespace}, {q.Name, e.Name},
	} {
		if f.want != "" && f.want != f.have {
			return false
		}
	}
	return (q.Until.IsZero() || !e.Time.After(q.Until)) && (q.Where == nil || q.Where(e))
}

// Read returns entries, newest first. next is the Before of the next call, 0 at the end.
func (l *Log) Read(ctx context.Context, q Query) (entries []Entry, next uint64, err error) {
	info, err := l.stream.Info(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read audit log: %w", err)
	}
	first, end := max(info.State.FirstSeq, 1), info.State.LastSeq+1 // an empty stream has no first
	if q.Before > 0 && q.Before < end {
		end = q.Before
	}
	for end > first {
		from := first
		if end-first > block {
			from = end - block
		}
		batch, err := l.readBlock(ctx, from, end)
		if err != nil {
			return nil, 0, err
		}
		for i := len(batch) - 1; i >= 0; i-- {
			e := &batch[i]
			if !q.Since.IsZero() && e.Time.Before(q.Since) {
				return entries, 0, nil // entries are in the order of time
			}
			if !q.fits(e) {
				continue
			}
			if len(entries) == q.Limit {
				return entries, entries[len(entries)-1].ID, nil
			}
			entries = append(entries, *e)
		}
		end = from
	}
	return entries, 0, nil
}

// readBlock returns the entries with IDs from one up to another, in order. In a cluster they come from any member's
// copy, which may be behind for a moment, or may not have heard of the new consumer yet.
func (l *Log) readBlock(ctx context.Context, from, end uint64) ([]Entry, error) {
	for begin := time.Now(); ; {
		entries, err := l.fetchBlock(ctx, from, end)
		complete := len(entries) > 0 && entries[len(entries)-1].ID == end-1
		failed := err != nil && !errors.Is(err, nats.ErrNoResponders)
		if failed || complete || l.opts.Broker.Alone() || time.Since(begin) > copyWait {
			return entries, err
		}
		select {
		case <-time.After(copyPoll):
		case <-ctx.Done():
			return nil, fmt.Errorf("read audit log: %w", ctx.Err())
		}
	}
}

// fetchBlock returns the entries that one copy has.
func (l *Log) fetchBlock(ctx context.Context, from, end uint64) ([]Entry, error) {
	consumer, err := l.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer func() { _ = l.stream.DeleteConsumer(context.WithoutCancel(ctx), consumer.CachedInfo().Name) }()
	msgs, err := consumer.FetchNoWait(int(end - from))
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	timeout := time.NewTimer(readWait)
	defer timeout.Stop()
	var entries []Entry
	for {
		select {
		case msg, ok := <-msgs.Messages():
			if !ok {
				return entries, msgs.Error()
			}
			meta, err := msg.Metadata()
			if err != nil {
				return nil, fmt.Errorf("read audit log: %w", err)
			}
			if meta.Sequence.Stream >= end {
				continue
			}
			var e Entry
			if err := json.Unmarshal(msg.Data(), &e); err != nil {
				return nil, fmt.Errorf("read audit entry %d: %w", meta.Sequence.Stream, err)
			}
			e.ID = meta.Sequence.Stream
			entries = append(entries, e)
		case <-ctx.Done():
			return nil, fmt.Errorf("read audit log: %w", ctx.Err())
		case <-timeout.C:
			return nil, fmt.Errorf("read audit log: %w", io.ErrNoProgress)
		}
	}
}
