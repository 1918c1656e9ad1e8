package backend

import (
	"context"

	"github.com/lapwing-monitoring/lapwing/state"
)

// loadedState is a state that answers once it is loaded. Handlers that go on with what an earlier process left ask before
// that, and would be told that nothing fails.
type loadedState struct {
	state  *state.State
	loaded chan struct{}
}

func newLoadedState() *loadedState { return &loadedState{loaded: make(chan struct{})} }

func (s *loadedState) ready(st *state.State) {
	s.state = st
	close(s.loaded)
}

func (s *loadedState) Select(ctx context.Context, query state.Query) (*state.Page, error) {
	select {
	case <-s.loaded:
		return s.state.Select(ctx, query)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
