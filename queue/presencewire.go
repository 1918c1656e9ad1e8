package queue

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// presenceVersion begins a message about agents.
const presenceVersion = 1

// presenceMessage is a message about agents.
type presenceMessage struct {
	member, life string
	number       uint64
	agents       []present
}

type present struct {
	name          resource.Name
	connected     bool
	subscriptions []string
}

// agent writes an agent; h is nil if it is not connected any more.
func (w *writer) agent(name resource.Name, h *home) {
	w.items++
	w.word(name.Namespace)
	w.text(name.Name)
	if h == nil {
		w.uint(0)
		return
	}
	w.uint(uint64(len(h.rings)) + 1)
	for _, r := range h.rings {
		w.word(r.subscription.Name)
	}
}

func readPresence(message []byte) (m presenceMessage, err error) {
	r := reader{Reader: fields.NewReader(message)}
	if err := fields.CheckVersion("a message about agents", r.Byte(), presenceVersion); err != nil {
		return m, err
	}
	m.member, m.life, m.number = r.Text(), r.Text(), r.Uint()
	for r.Err() == nil && len(r.Rest) > 0 {
		a := present{name: resource.Name{Namespace: r.word(), Name: r.Text()}}
		a.subscriptions, a.connected = r.subscriptions()
		m.agents = append(m.agents, a)
	}
	if r.Err() != nil {
		return m, fmt.Errorf("read a message about agents: %w", r.Err())
	}
	return m, nil
}
