//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// releaseAfter is when the receiver begins to take the deliveries that wait. A lost member has none on its way then.
const releaseAfter = 100 * time.Millisecond

// losing is a loss under way.
type losing struct {
	how       loss
	begin     time.Time
	victim    *member
	owned     []int // partitions
	survivors []*member
	parked    []string // outputs of alerts that wait for their delivery
	deadlines []string // entities with a TTL that were heard through a survivor
	heard     []string // and through the victim
}

// prepare makes what is due after the loss: deliveries that wait, and TTLs.
func (r *run) prepare(ctx context.Context, victim *member, owned []int) (*losing, error) {
	l := &losing{victim: victim, owned: owned}
	for _, m := range r.members {
		if m != victim {
			l.survivors = append(l.survivors, m)
		}
	}
	var err error
	if l.parked, err = r.park(ctx, victim, owned, parkedPerPart*len(owned)); err != nil {
		return nil, err
	}
	begin := time.Now()
	for _, partition := range owned {
		entity, err := r.expect(ctx, l.survivors[partition%len(l.survivors)], partition)
		if err != nil {
			return nil, err
		}
		l.deadlines = append(l.deadlines, entity)
	}
	pause(ctx, time.Until(begin.Add(ttl-dueAfter)))
	for _, partition := range owned {
		entity, err := r.expect(ctx, victim, partition)
		if err != nil {
			return nil, err
		}
		l.heard = append(l.heard, entity)
	}
	return l, nil
}

// expect sends a result with a TTL through a member, and returns its entity.
func (r *run) expect(ctx context.Context, through *member, partition int) (entity string, err error) {
	entity = r.entityOf(partition)
	check := &resource.Check{Metadata: meta("ttl"), Interval: 1, TTL: int64(ttl / time.Second), Output: "on time"}
	return entity, r.submit(ctx, through, entity, check)
}

// park makes alerts whose deliveries the receiver refuses, and waits until each was tried.
func (r *run) park(ctx context.Context, through *member, owned []int, n int) (outputs []string, err error) {
	r.receiver.refuse(true)
	var sending sync.WaitGroup
	free := make(chan struct{}, 8) // that many at a time
	errs := make(chan error, n)
	for i := range n {
		entity := r.entityOf(owned[i%len(owned)])
		output := parkedPrefix + " alert of " + entity
		outputs = append(outputs, output)
		free <- struct{}{}
		sending.Go(func() {
			errs <- r.put(ctx, through, entity, output)
			<-free
		})
	}
	sending.Wait()
	for range n {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return nil, err
	}
	return outputs, await(ctx, "the first attempts of deliveries", func() error {
		if tried := r.receiver.waiting(outputs); tried < n {
			return fmt.Errorf("%d of %d were made", tried, n)
		}
		return nil
	})
}

// watch measures a loss that has just begun.
func (r *run) watch(ctx context.Context, l *losing) (*result, error) {
	time.AfterFunc(releaseAfter, func() { r.receiver.refuse(false) })
	res := &result{how: l.how}
	var mu sync.Mutex // guards outputs, accepted and failed
	var outputs []string
	var accepted time.Time
	var failed error
	var probing sync.WaitGroup
	for _, m := range l.survivors {
		for partition := range r.s.partitions {
			probing.Go(func() {
				output, at, err := r.probe(ctx, m, partition)
				mu.Lock()
				defer mu.Unlock()
				outputs, failed = append(outputs, output), errors.Join(failed, err)
				if at.After(accepted) {
					accepted = at
				}
			})
		}
	}
	probing.Wait()
	if failed != nil {
		return nil, failed
	}
	res.events = accepted.Sub(l.begin)
	for _, one := range []struct {
		what  string
		came  func([]string) (time.Time, bool)
		names []string
		into  *time.Duration
	}{
		{"waiting deliveries", r.receiver.allCame, l.parked, &res.parked},
		{"new alerts", r.receiver.allCame, outputs, &res.alerts},
		{"deadlines", r.receiver.allMissing, l.deadlines, &res.deadline},
		{"deadlines of what the lost member heard", r.receiver.allMissing, l.heard, &res.heard},
	} {
		last, err := r.cameAll(ctx, one.what, func() (time.Time, bool) { return one.came(one.names) })
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", l.how, l.victim.name, err)
		}
		*one.into = last.Sub(l.begin)
	}
	res.heard -= ttl
	return res, nil
}

// probe sends alerts of a partition through a member until one is accepted.
func (r *run) probe(ctx context.Context, m *member, partition int) (output string, at time.Time, err error) {
	err = await(ctx, "an event to be accepted by "+m.name, func() error {
		entity := r.entityOf(partition)
		output = "first alert of " + entity
		return r.put(ctx, m, entity, output)
	})
	return output, time.Now(), err
}

// cameAll waits until something has come, and returns when its last part came.
func (r *run) cameAll(ctx context.Context, what string, came func() (time.Time, bool)) (last time.Time, err error) {
	err = await(ctx, what, func() error {
		var all bool
		if last, all = came(); !all {
			return errors.New("some are missing")
		}
		return nil
	})
	return last, err
}

// forget deletes the events whose TTLs would pass again and again.
func (r *run) forget(ctx context.Context, l *losing) error {
	for _, entity := range slices.Concat(l.deadlines, l.heard) {
		name := client.EventName(entity, "ttl")
		err := await(ctx, "the end of a TTL", func() error {
			err := client.Delete(ctx, r.members[0].client, client.Events, namespace, name)
			if errors.Is(err, client.ErrNotFound) {
				return nil // an attempt without an answer has deleted it
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
