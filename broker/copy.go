package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// eachBytes is how much of a stream is on its way to Each at a time.
	eachBytes = 4 << 20
	// eachPoll is how long Each waits for a message before it asks again which one is the newest, and eachPause how long
	// the broker may bring none.
	eachPoll  = time.Second
	eachPause = time.Minute
)

// Each calls f with the messages of a stream from one number on, oldest first, until it has called it with all that the
// stream has at that moment. f may keep no message, and may end the reading with an error.
func (b *Broker) Each(ctx context.Context, stream string, from uint64, f func(*Message) error) error {
	if err := b.each(ctx, stream, from, f); err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	return nil
}

func (b *Broker) each(ctx context.Context, stream string, from uint64, f func(*Message) error) error {
	newest, err := b.awaitNewest(ctx, stream)
	if err != nil || newest < from {
		return err
	}
	interrupted := make(chan error, 1)
	following := b.Follow(FollowOptions{
		Stream: stream, From: from, MaxBytes: eachBytes,
		Interrupted: func(err error) {
			select {
			case interrupted <- err:
			default:
			}
		},
	})
	defer following.Stop()
	poll := time.NewTicker(eachPoll)
	defer poll.Stop()
	reached, moved := uint64(0), time.Now()
	var last error
	again := func() error {
		begin := time.Now()
		newest, err = b.awaitNewest(ctx, stream)
		if waited := time.Since(begin); waited > eachPoll { // without a leader nothing else moved either
			moved = moved.Add(waited)
		}
		return err
	}
	for {
		if reached >= newest {
			// A message that replaces another one may have come: then the stream has neither of them before it.
			if err := again(); err != nil || reached >= newest {
				return err
			}
		}
		select {
		case m := <-following.Messages:
			if err := f(&m); err != nil {
				return err
			}
			reached, moved, last = m.Seq, time.Now(), nil
		case err := <-interrupted:
			if last == nil || last.Error() != err.Error() {
				b.log.Info("the reading of a stream begins anew", "stream", stream, "behind", reached, "err", err)
			}
			last = err
		case <-poll.C:
			if time.Since(moved) > eachPause {
				return errors.Join(fmt.Errorf("no message came from the broker for %s", eachPause), last)
			}
			if err := again(); err != nil { // the newest may have been removed
				return err
			}
		case <-following.Done:
			return errStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitNewest returns the number of a stream's newest message. It asks again until it gets an answer: there is none while
// the stream has no leader.
func (b *Broker) awaitNewest(ctx context.Context, stream string) (newest uint64, err error) {
	err = b.await(ctx, func() (string, error) {
		askCtx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		if newest, err = b.Newest(askCtx, stream, ">"); err != nil && passes(err) {
			return "stream " + stream + " to say what its newest message is", nil
		}
		return "", err
	})
	return newest, err
}

const (
	// fillMessages and fillBytes bound what a Filler has on its way.
	fillMessages = 256
	fillBytes    = 4 << 20
	// fillTry bounds one attempt to store what is on its way.
	fillTry = 5 * time.Second
)

// Filler puts messages into a stream that nothing else writes to, in their order and under numbers that are known
// before. It goes on where an earlier Filler of the stream has ended: what the stream has already is not stored again.
type Filler struct {
	broker *Broker
	js     jetstream.JetStream
	stream string
	next   uint64      // the number of the next message
	stored uint64      // the stream has all messages up to this number
	onWay  []*nats.Msg // the messages behind it
	bytes  int
}

// Fill returns a Filler for a stream whose first message has, or gets, the number first.
func (b *Broker) Fill(ctx context.Context, stream string, first uint64) (*Filler, error) {
	js, err := jetstream.New(b.conn, jetstream.WithPublishAsyncTimeout(fillTry))
	if err != nil {
		return nil, fmt.Errorf("fill stream %s: %w", stream, err)
	}
	f := &Filler{broker: b, js: js, stream: stream, next: max(first, 1)}
	if err := b.await(ctx, func() (string, error) { return f.wait(f.begin(ctx)) }); err != nil {
		return nil, fmt.Errorf("fill stream %s from %d: %w", stream, first, err)
	}
	return f, nil
}

// begin has an empty stream begin at the first number, and notes what the stream has.
func (f *Filler) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillTry)
	defer cancel()
	s, err := f.js.Stream(ctx, f.stream)
	if err != nil {
		return err
	}
	f.stored = s.CachedInfo().State.LastSeq
	switch {
	case f.stored+1 >= f.next:
		return nil
	case f.stored > 0:
		return fmt.Errorf("it ends at %d", f.stored)
	}
	f.stored = f.next - 1
	return s.Purge(ctx, jetstream.WithPurgeSequence(f.next))
}

// Add puts a message behind the others. It is stored after Flush.
func (f *Filler) Add(ctx context.Context, subject string, data []byte) error {
	f.next++
	if f.next <= f.stored+1 {
		return nil
	}
	f.onWay = append(f.onWay, &nats.Msg{Subject: subject, Data: slices.Clone(data)})
	if f.bytes += len(data); len(f.onWay) < fillMessages && f.bytes < fillBytes {
		return nil
	}
	return f.Flush(ctx)
}

// Flush stores all messages. In a cluster it tries again until ctx ends, as Write does.
func (f *Filler) Flush(ctx context.Context) error {
	err := f.broker.await(ctx, func() (string, error) {
		err := f.send()
		if err == nil || !f.passes(err) {
			return "", err
		}
		if err := f.look(ctx); err != nil {
			return f.wait(err)
		}
		return f.wait(err)
	})
	if err != nil {
		return fmt.Errorf("store messages of stream %s behind %d: %w", f.stream, f.stored, err)
	}
	return nil
}

// send makes one attempt to store the messages on their way.
func (f *Filler) send() error {
	answers := make([]jetstream.PubAckFuture, 0, len(f.onWay))
	for i, msg := range f.onWay {
		var opts []jetstream.PublishOpt
		if f.broker.opts.Cluster != nil { // so that a message that is lost on its way leaves no gap
			opts = append(opts, jetstream.WithExpectLastSequence(f.stored+uint64(i)))
		}
		answer, err := f.js.PublishMsgAsync(&nats.Msg{Subject: msg.Subject, Data: msg.Data}, opts...)
		if err != nil {
			return err
		}
		answers = append(answers, answer)
	}
	var failed error
	for i, answer := range answers {
		select {
		case ack := <-answer.Ok():
			if want := f.stored + uint64(i) + 1; ack.Sequence != want {
				return fmt.Errorf("message %d was stored as %d", want, ack.Sequence)
			}
		case err := <-answer.Err():
			failed = cmp.Or(failed, err)
		}
	}
	if failed == nil {
		f.drop(f.stored + uint64(len(f.onWay)))
	}
	return failed
}

// look drops the messages that the stream has by now.
func (f *Filler) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillTry)
	defer cancel()
	s, err := f.js.Stream(ctx, f.stream)
	if err != nil {
		return err
	}
	last := s.CachedInfo().State.LastSeq
	if last > f.stored+uint64(len(f.onWay)) {
		return fmt.Errorf("stream %s has message %d, and only %d were sent", f.stream, last, f.stored+uint64(len(f.onWay)))
	}
	f.drop(max(last, f.stored))
	return nil
}

// drop notes that the stream has all messages up to a number.
func (f *Filler) drop(upto uint64) {
	n := int(upto - f.stored)
	clear(f.onWay[:n])
	f.onWay, f.stored, f.bytes = f.onWay[n:], upto, 0
	for _, msg := range f.onWay {
		f.bytes += len(msg.Data)
	}
}

// wait returns what is waited for after an error that passes.
func (f *Filler) wait(err error) (string, error) {
	if err == nil || !f.passes(err) {
		return "", err
	}
	return "stream " + f.stream + " to take messages", nil
}

// passes reports whether another attempt may succeed.
func (f *Filler) passes(err error) bool {
	if f.broker.opts.Cluster == nil {
		return false
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return true
		}
	}
	return passes(err) || errors.Is(err, jetstream.ErrAsyncPublishTimeout)
}
