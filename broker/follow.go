package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// followHeartbeat is how often the server says that there is nothing new. A reading that hears nothing for two of
	// them begins anew.
	followHeartbeat = time.Second
	// followPause is the pause before a reading begins anew.
	followPause = 250 * time.Millisecond
	// placeTries is how often a consumer is made in the hope that it lands on this server: the cluster places it at
	// random on one of the members that have a copy.
	placeTries = 40
	// pullMessages is how many messages are asked for at a time. The client library reserves room for so many.
	pullMessages = 1000
	// DefaultFollowBytes bounds what is on its way to a reader. The server closes a connection with 64 MiB to send, and
	// a reader that must reconnect loses seconds.
	DefaultFollowBytes = 16 << 20
)

// FollowOptions says what to read.
type FollowOptions struct {
	// Stream is the stream's name, and From the first message to read.
	Stream string
	From   uint64
	// MaxBytes bounds the messages on their way. Default DefaultFollowBytes.
	MaxBytes int
	// Buffer is how many messages Messages holds. Default none.
	Buffer int
	// Interrupted is called when reading stops for a while, on the following's goroutine. Default: nothing.
	Interrupted func(error)
}

// Message is one message of a stream.
type Message struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Data    []byte // belongs to the receiver
	Time    time.Time
	Pending uint64 // messages of the server's copy behind this one
}

// Following reads a stream in order.
type Following struct {
	// Messages gets each message. Messages that are not there any more are left out.
	Messages <-chan Message
	// Done is closed when the following has ended: after Stop, or because the connection to the broker was closed for
	// good.
	Done <-chan struct{}

	broker   *Broker
	opts     FollowOptions
	messages chan Message
	cancel   context.CancelFunc
	done     chan struct{}
	next     uint64
}

// Follow starts to read a stream. The reader gets the messages of this server's own copy, as soon as that has them. It
// goes on by itself after any interruption. The caller must call Stop.
//
// A consumer on another server would be silent for 10 s if that server dies. So the consumer is made until it is on
// this one, asked for heartbeats, and replaced when it is silent. Only if this server has no copy it reads another one's,
// and NATS servers of its own choose.
func (b *Broker) Follow(opts FollowOptions) *Following {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultFollowBytes
	}
	if opts.Interrupted == nil {
		opts.Interrupted = func(error) {}
	}
	ctx, cancel := context.WithCancel(b.life)
	f := &Following{
		broker: b, opts: opts, cancel: cancel, next: max(opts.From, 1),
		messages: make(chan Message, opts.Buffer), done: make(chan struct{}),
	}
	f.Messages, f.Done = f.messages, f.done
	go f.run(ctx)
	return f
}

// Stop ends the following and waits for that.
func (f *Following) Stop() {
	f.cancel()
	<-f.done
}

func (f *Following) run(ctx context.Context) {
	defer close(f.done)
	for {
		err := f.read(ctx)
		closed := errors.Is(err, jetstream.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionClosed)
		if closed || ctx.Err() != nil {
			return
		}
		f.opts.Interrupted(err)
		select {
		case <-time.After(followPause):
		case <-ctx.Done():
			return
		}
	}
}

// read makes a consumer and hands over its messages until something is wrong with it.
func (f *Following) read(ctx context.Context) error {
	consumer, err := f.place(ctx)
	if err != nil {
		return fmt.Errorf("read stream %s from %d: %w", f.opts.Stream, f.next, err)
	}
	defer f.remove(consumer)
	iter, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, f.opts.MaxBytes),
		jetstream.PullHeartbeat(followHeartbeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return fmt.Errorf("read stream %s from %d: %w", f.opts.Stream, f.next, err)
	}
	defer iter.Stop()
	for delivered := uint64(1); ; delivered++ {
		msg, err := iter.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read stream %s from %d: %w", f.opts.Stream, f.next, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read stream %s from %d: %w", f.opts.Stream, f.next, err)
		}
		if meta.Sequence.Consumer != delivered {
			return fmt.Errorf("read stream %s from %d: a message was lost on its way", f.opts.Stream, f.next)
		}
		m := Message{
			Seq: meta.Sequence.Stream, Subject: f.broker.plain(msg.Subject()), Header: msg.Headers(), Data: msg.Data(),
			Time: meta.Timestamp, Pending: meta.NumPending,
		}
		select {
		case f.messages <- m:
			f.next = m.Seq + 1
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// place makes a consumer on this server.
func (f *Following) place(ctx context.Context) (jetstream.Consumer, error) {
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.next, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	}
	for try := 1; ; try++ {
		tryCtx, cancel := context.WithTimeout(ctx, apiTimeout)
		consumer, err := f.broker.js.CreateConsumer(tryCtx, f.broker.stored(f.opts.Stream), cfg)
		cancel()
		if err != nil {
			return nil, err
		}
		info := consumer.CachedInfo()
		here := info.Cluster == nil || info.Cluster.Leader == f.broker.opts.Name
		if here || try == placeTries || !f.broker.keeps(f.opts.Stream) {
			return consumer, nil
		}
		f.remove(consumer)
	}
}

// remove deletes a consumer. If that fails, the server does it a minute later.
func (f *Following) remove(consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(f.broker.life, apiTimeout)
	defer cancel()
	_ = f.broker.js.DeleteConsumer(ctx, f.broker.stored(f.opts.Stream), consumer.CachedInfo().Name)
}
