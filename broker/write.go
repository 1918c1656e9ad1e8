package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// writeTry bounds one attempt of a write in a cluster, and writePause is between two.
	writeTry   = 2 * time.Second
	writePause = 100 * time.Millisecond
	// writeTimeout bounds a write without a deadline in a cluster. A takeover takes up to 10 s.
	writeTimeout = 15 * time.Second
)

// ErrUncertain is the error of a write that may have taken effect, or may do so later.
var ErrUncertain = errors.New("it is not known whether the write took effect")

// Conflict reports whether a write was refused because there is a newer message of its subject, or because another write
// of the subject is under way.
func Conflict(err error) bool { return outrun(err) || contended(err) }

// outrun reports whether a write was refused because there is a newer message of its subject.
func outrun(err error) bool { return hasCode(err, jetstream.JSErrCodeStreamWrongLastSequence) }

// contended reports whether a write was refused because another write of its subject is under way, in a replicated
// stream.
func contended(err error) bool {
	return hasCode(err, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

func hasCode(err error, code jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == code
}

// Write stores a message in the stream that takes its subject, and returns its sequence number. Alone it makes one
// attempt. With others it tries again until ctx ends while the stream has no leader, which takes seconds after a
// server has died; without a deadline it gives up after 15 s. The message counts once, however often it was sent: Write
// gives it an id. The error is ErrUncertain if the message may be stored all the same.
func (b *Broker) Write(ctx context.Context, msg *nats.Msg) (uint64, error) {
	return b.write(ctx, msg, nil)
}

// WriteIf is Write if the newest message of the subject in a stream has a sequence number; 0 is none. Otherwise the error
// is a Conflict. If it is ErrUncertain too, the message may have been stored before the newest one.
func (b *Broker) WriteIf(ctx context.Context, stream string, msg *nats.Msg, newest uint64) (uint64, error) {
	return b.write(ctx, msg, &condition{stream, newest})
}

// condition is that of WriteIf.
type condition struct {
	stream string
	newest uint64
}

func (b *Broker) write(ctx context.Context, msg *nats.Msg, c *condition) (uint64, error) {
	msg = &nats.Msg{Subject: b.Subject(msg.Subject), Header: msg.Header, Data: msg.Data}
	w := writing{id: rand.Text(), alone: b.Alone()}
	var opts []jetstream.PublishOpt
	if c != nil {
		w.expected = c.newest
		w.newest = func(ctx context.Context) (newestWrite, error) { return b.newestWrite(ctx, c.stream, msg.Subject) }
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(c.newest))
	}
	if !w.alone {
		opts = append(opts, jetstream.WithMsgID(w.id), jetstream.WithRetryAttempts(0))
	}
	w.publish = func(ctx context.Context) (uint64, error) {
		ack, err := b.js.PublishMsg(ctx, msg, opts...)
		if err != nil {
			return 0, err
		}
		return ack.Sequence, nil
	}
	if w.alone {
		return w.once(ctx)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, writeTimeout)
		defer cancel()
	}
	return w.run(ctx, b.life.Done())
}

// newestWrite is the newest message of a subject; the zero one if there is none.
type newestWrite struct {
	seq   uint64
	id    string // of its write
	after string // the number that its write expected; "" for a write without a condition
}

// newestWrite asks the leader of a stream. The subject has the name that the server knows.
func (b *Broker) newestWrite(ctx context.Context, stream, subject string) (newestWrite, error) {
	m, err := b.newest(ctx, b.stored(stream), subject)
	if err != nil || m == nil {
		return newestWrite{}, err
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil && len(m.Header) > 0 {
		return newestWrite{}, fmt.Errorf("read the newest message of %s: %w", subject, err)
	}
	return newestWrite{m.Sequence, header.Get(jetstream.MsgIDHeader), header.Get(jetstream.ExpectedLastSubjSeqHeader)}, nil
}

// writing is a write with its attempts.
type writing struct {
	id       string
	alone    bool
	expected uint64 // the newest message of the subject must have this number
	publish  func(context.Context) (seq uint64, err error)
	newest   func(context.Context) (newestWrite, error)
	sent     bool // an attempt that was not acknowledged may have stored the message
	doubtful bool // a refusal came that another leader may not share
}

// once makes one attempt.
func (w *writing) once(ctx context.Context) (uint64, error) {
	seq, err := w.attempt(ctx)
	return seq, w.failed(err)
}

// attempt sends the message, unless ctx has ended.
func (w *writing) attempt(ctx context.Context) (seq uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	seq, err = w.publish(ctx)
	w.sent = w.sent || err != nil && w.mayBeStored(err)
	return seq, err
}

// run makes attempts until one is answered for good, or ctx or the process ends.
func (w *writing) run(ctx context.Context, stop <-chan struct{}) (uint64, error) {
	for {
		tryCtx, cancel := context.WithTimeout(ctx, writeTry)
		seq, again, err := w.try(tryCtx)
		cancel()
		if !again {
			return seq, w.failed(err)
		}
		select {
		case <-time.After(writePause):
		case <-ctx.Done():
			w.sent = w.sent || w.doubtful
			return 0, w.failed(errors.Join(err, ctx.Err()))
		case <-stop:
			return 0, w.failed(errors.Join(err, errStopped))
		}
	}
}

// try makes one attempt, and reports whether another one may succeed.
//
// A refusal says little. After an attempt without an answer, the newer message may be that of the attempt itself. And a
// leader that was cut off takes messages until it hears of the new one: then both get the message, and the first answer
// counts. The old leader refuses what it has not caught up with, and what comes behind a write of its own that will
// never be confirmed, and the new one stores it. So after a refusal the newest message decides. There is none if the
// expected one, a tombstone, was removed.
func (w *writing) try(ctx context.Context) (seq uint64, again bool, err error) {
	seq, err = w.attempt(ctx)
	switch {
	case passes(err):
		return 0, true, err
	case contended(err):
		w.doubtful = true
		return 0, true, err
	case !outrun(err):
		return seq, false, err
	}
	newest, bad := w.newest(ctx)
	switch {
	case bad != nil || newest.id != w.id && 0 < newest.seq && newest.seq <= w.expected: // an old leader has answered
		w.doubtful = true
		return 0, true, errors.Join(err, bad)
	case newest.id == w.id:
		return newest.seq, false, nil
	case newest.after == strconv.FormatUint(w.expected, 10):
		w.sent = false // nothing can be between the expected message and this one
	default:
		w.sent = w.sent || w.doubtful // it may be between them: a leader that did not answer first may have stored it
	}
	return 0, false, err
}

// failed adds ErrUncertain to an error if an attempt was not answered.
func (w *writing) failed(err error) error {
	if err != nil && w.sent {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
}

// mayBeStored reports whether the message of an attempt that failed with err may be stored, or be stored later.
func (w *writing) mayBeStored(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) { // the leader's copy may have failed, and the others not
		return !w.alone && (api.ErrorCode == codeStoreFailed || api.ErrorCode == codeNoMatch)
	}
	return !errors.Is(err, jetstream.ErrNoStreamResponse) && !errors.Is(err, nats.ErrNoResponders) &&
		!errors.Is(err, nats.ErrReconnectBufExceeded)
}

// passes reports whether an attempt that failed with err may succeed later.
func passes(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case codeDuplicate, codeNotLeader, codeNotAvailable:
			return true
		}
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected)
}
