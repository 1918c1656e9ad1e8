package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func startBroker(t *testing.T) *Broker {
	t.Helper()
	b, err := New(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := b.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBrokenConnection has the server drop the connection: writes and readers must go on by themselves.
func TestBrokenConnection(t *testing.T) {
	b := startBroker(t)
	consumer, err := b.JetStream().OrderedConsumer(t.Context(), "s", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	reading, err := consumer.Consume(func(m jetstream.Msg) { got <- string(m.Data()) })
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Stop()
	publish := func(text string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for {
			_, err := b.JetStream().Publish(t.Context(), "s.a", []byte(text), jetstream.WithMsgID(text))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("publish %s: %v", text, err)
			}
		}
		select {
		case m := <-got:
			if m != text {
				t.Fatalf("got %q, want %q", m, text)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s was not read", text)
		}
	}
	publish("before")
	id, err := b.conn.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.srv.DisconnectClientByID(id); err != nil {
		t.Fatal(err)
	}
	publish("after")
	select {
	case err := <-b.Failed():
		t.Errorf("it failed: %v", err)
	default:
	}
}

// TestRefusedConnection sends what makes the server close the connection for good: Failed must report it.
func TestRefusedConnection(t *testing.T) {
	b := startBroker(t)
	if _, err := b.JetStream().Publish(t.Context(), "s."+strings.Repeat("x", 20_000), nil); err != nil {
		t.Errorf("a long subject within the limit: %v", err)
	}
	_ = b.conn.Publish("s."+strings.Repeat("x", 2*maxControlLine), nil)
	select {
	case err := <-b.Failed():
		if !strings.Contains(err.Error(), "control line") {
			t.Errorf("it failed with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the closed connection was not reported")
	}
	if b.Err() == nil {
		t.Error("the broker says that it is fine")
	}
}
