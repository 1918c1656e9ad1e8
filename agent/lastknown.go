package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// lastKnown is what an agent needs to run checks after a restart without a backend: its schedule and its entity. It also
// has the members of the cluster, which the agent may use as long as it is configured with the same backends. It is a
// file beside the spool. It holds no checks with secrets.
type lastKnown struct {
	Entity   *resource.EntityConfig `json:"entity,omitempty"`
	Checks   []rememberedCheck      `json:"checks"`
	Members  []string               `json:"members,omitempty"`
	Backends []string               `json:"backends,omitempty"` // configured when it was written
}

type rememberedCheck struct {
	PhaseMillis uint64 `json:"phase_ms"`
	Request     []byte `json:"request"` // protobuf CheckRequest
}

// writeKnownAfter is how long changes are collected before they are written.
const writeKnownAfter = time.Second

func (a *Agent) knownFile() string { return filepath.Join(a.opts.SpoolDir, "schedule.json") }

// meetSelf takes the backend's definition of the agent's entity.
func (a *Agent) meetSelf(c *resource.EntityConfig) {
	if a.opts.Managed {
		return
	}
	a.self.pushed.Store(c)
	a.remember()
}

// learn takes checks that the backend leaves to the agent.
func (a *Agent) learn(replace bool, entries []wire.ScheduleEntry) {
	a.schedule.apply(replace, entries)
	a.remember()
}

// remember schedules a write of the file.
func (a *Agent) remember() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// keepKnown writes the file a moment after each change, until ctx ends.
func (a *Agent) keepKnown(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	failed := false
	for {
		select {
		case <-a.changed:
			timer.Reset(writeKnownAfter)
			continue
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		err := a.writeKnown()
		if err != nil && !failed {
			a.log.Error("cannot save the schedule to disk: a restart without a backend would run no checks", "err", err)
		}
		failed = err != nil
	}
}

func (a *Agent) writeKnown() error {
	m := lastKnown{
		Entity: a.self.pushed.Load(), Checks: a.schedule.remembered(), Members: a.transport.Members(), Backends: a.opts.BackendURLs,
	}
	b, err := json.Marshal(&m)
	if err != nil {
		return fmt.Errorf("encode schedule: %w", err)
	}
	name := a.knownFile()
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// recall restores what an earlier process wrote.
func (a *Agent) recall() {
	if a.opts.SpoolDir == "" {
		return
	}
	b, err := os.ReadFile(a.knownFile())
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var m lastKnown
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		a.log.Error("cannot read the saved schedule", "err", err)
		return
	}
	if m.Entity != nil && m.Entity.Metadata.Name == a.opts.Name && m.Entity.Metadata.Namespace == a.opts.Namespace {
		a.self.pushed.Store(m.Entity)
	}
	if slices.Equal(m.Backends, a.opts.BackendURLs) {
		a.transport.Recall(m.Members)
	}
	entries := make([]wire.ScheduleEntry, len(m.Checks))
	for i, c := range m.Checks {
		entries[i] = wire.ScheduleEntry{PhaseMillis: c.PhaseMillis, Request: c.Request}
	}
	if len(entries) > 0 {
		a.schedule.apply(true, entries)
		a.log.Info("running checks by the saved schedule until a backend is connected", "checks", len(entries))
	}
}

// remembered are the checks that may be written to the file.
func (s *schedule) remembered() []rememberedCheck {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]rememberedCheck, 0, len(s.jobs))
	for _, j := range s.jobs {
		if len(j.request.Secrets) == 0 {
			all = append(all, rememberedCheck{j.phase, j.request.AppendProto(nil)})
		}
	}
	return all
}
