package backend

import (
	"context"

	"github.com/lapwing-monitoring/lapwing/state"
)

// loadedState is a state that answers once it is live. Handlers that go on with deliveries of an earlier process ask
// before that, and must not hear that nothing fails.
type loadedState struct {
	state  *state.State
	loaded <-chan struct{}
}

func (s *loadedState) Select(ctx context.Context, query state.Query) (*state.Page, error) {
	select {
	case <-s.loaded:
		return s.state.Select(ctx, query)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
