package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// ErrNoListener is returned for a request whose subject has no subscriber at present.
var ErrNoListener = errors.New("no member listens")

// Bus sends messages between the members. They are not stored: a message reaches the subscribers that are connected
// when it is sent, the own ones included, at most once, and in the sender's order. Alone, the bus has one member.
type Bus struct{ broker *Broker }

// Bus returns the members' bus. It is valid from Start on.
func (b *Broker) Bus() *Bus { return &Bus{b} }

// Publish sends a message. It does not wait for anything.
func (b *Bus) Publish(subject string, data []byte) error {
	if err := b.broker.conn.Publish(b.broker.Subject(subject), data); err != nil {
		return fmt.Errorf("publish to %s: %w", subject, b.broker.Explain(err))
	}
	return nil
}

// Subscribe calls f for each message of a subject, one after the other, on a goroutine of the subscription. reply is
// the subject for the answer, "" if none is expected. data belongs to f. cancel ends the calls, except one that runs.
func (b *Bus) Subscribe(subject string, f func(reply string, data []byte)) (cancel func(), err error) {
	sub, err := b.broker.conn.Subscribe(b.broker.Subject(subject), func(m *nats.Msg) {
		f(b.broker.plain(m.Reply), m.Data)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // it fails only if the connection is closed
}

// Request sends a message and waits for the first answer. It fails with ErrNoListener at once if the subject has no
// subscriber. ctx must have a deadline.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	answer, err := b.broker.conn.RequestWithContext(ctx, b.broker.Subject(subject), data)
	if errors.Is(err, nats.ErrNoResponders) {
		err = ErrNoListener
	}
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", subject, err)
	}
	return answer.Data, nil
}
