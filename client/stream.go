package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// ErrOverflow ends a stream whose reader was slower than the events. A new stream begins with the current events.
var ErrOverflow = errors.New("the live stream ran ahead of its reader")

// StreamType says what a StreamEvent reports.
type StreamType string

// The types of stream events. Other types are skipped.
const (
	StreamEventPut    StreamType = "event"  // an event is current, or has changed
	StreamEventDelete StreamType = "delete" // an event was deleted
	StreamSynced      StreamType = "synced" // every event that was current at the start has been sent
	StreamReset       StreamType = "reset"  // the position is no longer known: all current events follow
)

const streamOverflow = "overflow"

// StreamEvent is one message of the live stream.
type StreamEvent struct {
	Type StreamType

	// Namespace, Entity and Check name the event that was put or deleted. Check is empty for metrics alone.
	Namespace, Entity, Check string

	// Event is set when Type is StreamEventPut.
	Event *resource.Event

	// Data is the JSON as it arrived. It is overwritten after the callback returns.
	Data json.RawMessage
}

// StreamOptions limit a stream.
type StreamOptions struct {
	FieldSelector string
	LabelSelector string

	// Position, if set, holds the server's name for the stream's position. It is empty at first, and the stream keeps
	// it up to date. A stream that begins with a position brings only changes since then, before StreamSynced, if the
	// server still knows it. If not, StreamReset comes first. All backends of a cluster know the same positions.
	Position *string
}

// Stream calls f with every current event of a namespace ("" = all), then once with StreamSynced, then with every
// change as it happens. It returns only with an error: f's, ctx's, ErrOverflow, or that of the connection;
// io.ErrUnexpectedEOF if the server ended it.
func (c *Client) Stream(ctx context.Context, namespace string, f func(StreamEvent) error) error {
	return c.StreamWith(ctx, namespace, StreamOptions{}, f)
}

// StreamWith is Stream with options. An event that no longer matches is reported as deleted.
func (c *Client) StreamWith(ctx context.Context, namespace string, opts StreamOptions, f func(StreamEvent) error) error {
	if namespace == "" {
		namespace = "-"
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(c.opts.Timeout, func() { cancel(&timeoutError{c.bases.base(), c.opts.Timeout}) })
	defer silent.Stop()

	query := url.Values{}
	if opts.FieldSelector != "" {
		query.Set("fieldSelector", opts.FieldSelector)
	}
	if opts.LabelSelector != "" {
		query.Set("labelSelector", opts.LabelSelector)
	}
	if opts.Position != nil && *opts.Position != "" {
		query.Set("last_event_id", *opts.Position)
	}
	resp, err := c.send(ctx, request{
		method: http.MethodGet,
		path:   "/api/lapwing/v1/namespaces/" + escape(namespace) + "/events/stream",
		query:  query,
		header: http.Header{
			"Accept": {"text/event-stream"},
			// A compressing proxy would hold events back until it has a full block.
			"Accept-Encoding": {"identity"},
		},
	})
	if err != nil {
		return fmt.Errorf("open live stream: %w", because(ctx, err))
	}
	defer resp.Body.Close()
	silent.Stop()
	base := c.bases.base()
	silent = time.AfterFunc(c.silence, func() { cancel(fmt.Errorf("the live stream was silent for %v", c.silence)) })
	defer silent.Stop()

	sse := newSSEReader(readerFunc(func(p []byte) (int, error) {
		n, err := resp.Body.Read(p)
		silent.Reset(c.silence)
		return n, err
	}))
	if opts.Position != nil {
		sse.begin(*opts.Position)
	}
	for {
		name, data, err := sse.next()
		if opts.Position != nil {
			*opts.Position = sse.id // empty if the server wants the client to begin anew
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			c.bases.leave(base) // a new stream goes on from the position at another backend
			return fmt.Errorf("read live stream: %w", because(ctx, err))
		}
		if name == streamOverflow {
			return ErrOverflow
		}
		ev, known, err := parseStreamEvent(name, data)
		if err != nil {
			return fmt.Errorf("read live stream: %w", err)
		}
		if !known {
			continue
		}
		// f may be slow: only the server's silence counts.
		silent.Stop()
		if err := f(ev); err != nil {
			return err
		}
		silent.Reset(c.silence)
		if ctx.Err() != nil {
			return fmt.Errorf("read live stream: %w", context.Cause(ctx))
		}
	}
}

func parseStreamEvent(name string, data []byte) (ev StreamEvent, known bool, err error) {
	ev = StreamEvent{Type: StreamType(name), Data: data}
	switch ev.Type {
	case StreamEventPut:
		ev.Event = new(resource.Event)
		if err := json.Unmarshal(data, ev.Event); err != nil {
			return ev, false, fmt.Errorf("decode event: %w", err)
		}
		if ev.Event.Entity == nil {
			return ev, false, errors.New("decode event: it has no entity")
		}
		ev.Namespace = ev.Event.Entity.Metadata.Namespace
		ev.Entity = ev.Event.Entity.Metadata.Name
		if ev.Event.Check != nil {
			ev.Check = ev.Event.Check.Metadata.Name
		}
	case StreamEventDelete:
		var key struct{ Namespace, Entity, Check string }
		if err := json.Unmarshal(data, &key); err != nil {
			return ev, false, fmt.Errorf("decode deletion: %w", err)
		}
		ev.Namespace, ev.Entity, ev.Check = key.Namespace, key.Entity, key.Check
	case StreamSynced, StreamReset:
	default:
		return ev, false, nil
	}
	return ev, true, nil
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
