package backend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/state"
)

// This file makes the first member of a cluster from a backend that was alone, or that was restored from a backup.
//
// The state database stays as it is. The streams are set apart, in the directory broker-alone, because a cluster's
// broker takes only streams that it has made. The member starts with an empty broker, and copies the definitions, the
// audit log, and the messages that the state database has not stored yet. The others wait for that (see package
// broker), and then copy the state as any new member does.
//
// The steps: the identity says that the member brings data; the streams are set apart; they are copied; the broker says
// that all is copied; the identity says it; the backend is ready; the streams that were set apart are removed. A start
// after a kill does a step again, or goes on where it was. A start without a cluster puts the streams back until the
// identity says that all is copied.

// beginToBring makes a backend that was alone a member that brings its data.
func (s *Survey) beginToBring(b *Backend) error {
	var needed int64
	from := make([]uint64, s.id.Partitions)
	for p := range from {
		st := s.stream(eventlog.Stored(p).Name)
		next, err := s.unread(st)
		if err != nil {
			return err
		}
		from[p] = next
		if r := st.report; r.Messages > 0 && r.Last >= next {
			needed += r.Bytes / int64(r.Messages) * int64(r.Last-next+1)
		}
	}
	needed += s.stream(config.Stored().Name).report.Bytes + s.stream(audit.Stored(0).Name).report.Bytes
	if err := b.space(initialSpace + uint64(needed)); err != nil {
		return waitForSpace(err)
	}
	for p, next := range from {
		if err := state.AcceptStream(s.db, p); err != nil {
			return err
		}
		if next > max(s.positions[p], 1) {
			if err := state.StorePosition(s.db, p, next); err != nil {
				return err
			}
		}
	}
	s.id.Member, s.id.Brings = s.id.memberName(&b.opts.Cluster), rand.Text()
	if err := s.dir.store(s.db, &s.id); err != nil {
		return err
	}
	return s.setStreamsApart()
}

// unread returns the first message of a partition that the state database has not stored, behind losses that were
// accepted. The copy has no gaps, so there must be none behind it, and its replay sends what it finds.
func (s *Survey) unread(st *stream) (uint64, error) {
	next, p := max(s.positions[st.partition], 1), st.partition
	lost := s.id.Lost[st.shape.Name]
	for moved := true; moved; {
		moved = false
		for _, r := range lost {
			if r.From <= next && next <= r.To {
				next, moved = r.To+1, true
			}
		}
	}
	gap := slices.ContainsFunc(lost, func(r blocks.Range) bool { return next < r.From && r.From <= st.report.Last })
	quiet := p < len(s.id.Quiet) && s.id.Quiet[p] >= next
	if gap || quiet {
		return 0, fmt.Errorf("the backend has not read partition %d of the event log since its repair: "+
			"start it alone once more, without --peers, wait until it is ready, and stop it", p)
	}
	return next, nil
}

// stream returns one of the streams that were surveyed.
func (s *Survey) stream(name string) *stream {
	for i := range s.streams {
		if s.streams[i].shape.Name == name {
			return &s.streams[i]
		}
	}
	return &stream{report: new(blocks.Report)}
}

// setStreamsApart moves the streams of a backend that was alone to where the broker of a cluster does not see them.
func (s *Survey) setStreamsApart() error {
	if exists(s.dir.alone()) {
		return nil
	}
	if err := os.Rename(s.dir.broker(), s.dir.alone()); err != nil {
		return fmt.Errorf("set the streams of the backend that was alone apart: %w", err)
	}
	return blocks.SyncDir(s.dir.path)
}

// giveUpToBring makes a member that has not brought all of its data a backend that is alone again.
func (s *Survey) giveUpToBring(b *Backend) error {
	if exists(s.dir.alone()) {
		if err := os.RemoveAll(s.dir.broker()); err != nil {
			return fmt.Errorf("remove the copy of the streams: %w", err)
		}
		if err := os.Rename(s.dir.alone(), s.dir.broker()); err != nil {
			return fmt.Errorf("put the streams back: %w", err)
		}
		if err := blocks.SyncDir(s.dir.path); err != nil {
			return err
		}
	}
	b.log.Warn("this backend was about to bring its data into a cluster, and is alone again: "+
		"members that waited for it must start with empty state directories", "member", s.id.Member)
	s.id.Member, s.id.Brings = "", ""
	return s.dir.store(s.db, &s.id)
}

// bring copies the streams of a backend that was alone into the cluster.
func (b *Backend) bring(ctx context.Context, s *storage) error {
	if s.id.Brings == "" {
		return nil
	}
	b.say("bringing the data of this backend into the cluster")
	b.log.Info("this backend was alone and brings its data into the cluster", "from", s.dir.alone(), "member", s.id.Member)
	begin := time.Now()
	alone, err := broker.New(broker.Options{Dir: s.dir.alone(), Logger: b.log})
	if err != nil {
		return err
	}
	if err := alone.Start(ctx); err != nil {
		return fmt.Errorf("start broker on the streams of a backend that was alone: %w", err)
	}
	c := &bringing{found: s.found, from: alone, to: s.broker}
	if err := errors.Join(c.copyAll(ctx), alone.Stop()); err != nil {
		return fmt.Errorf("bring the data of a backend that was alone into the cluster: %w", err)
	}
	if err := s.broker.Brought(ctx); err != nil {
		return err
	}
	s.id.Brings, s.id.Lost, s.id.Quiet = "", nil, nil // the copy begins behind the losses
	if err := s.dir.store(s.db, s.id); err != nil {
		return err
	}
	b.log.Info("the data of this backend is in the cluster", "messages", c.messages,
		"seconds", time.Since(begin).Seconds())
	return nil
}

// bringing is one copy of streams.
type bringing struct {
	found    *Survey
	from, to *broker.Broker
	messages int // read from the streams
}

// copyAll copies the audit log first, because that is the stream that the other members open first.
func (c *bringing) copyAll(ctx context.Context) error {
	if err := c.copyAudit(ctx); err != nil {
		return err
	}
	if err := c.copyDefinitions(ctx); err != nil {
		return err
	}
	for p := range c.found.id.Partitions {
		if err := c.copyLog(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// errFirst ends a reading at the first message.
var errFirst = errors.New("this is the first one")

// copyAudit begins at the first entry that is there now: the broker has removed older ones.
func (c *bringing) copyAudit(ctx context.Context) error {
	r := c.found.stream(audit.Stored(0).Name).report
	first := r.Last + 1
	each := func(f func(id uint64, entry []byte) error) error {
		if r.Messages == 0 {
			return nil
		}
		return audit.Copy(ctx, c.from, func(id uint64, _ time.Time, entry []byte) error { return f(id, entry) })
	}
	err := each(func(id uint64, _ []byte) error {
		first = id
		return errFirst
	})
	if err != nil && !errors.Is(err, errFirst) {
		return err
	}
	return audit.Refill(ctx, c.to, first, func(add func([]byte) error) error {
		return each(func(_ uint64, entry []byte) error {
			c.messages++
			return add(entry)
		})
	})
}

// copyDefinitions gives them revisions above their old ones.
func (c *bringing) copyDefinitions(ctx context.Context) error {
	r := c.found.stream(config.Stored().Name).report
	return config.Refill(ctx, c.to, r.Last+1, func(add func(string, []byte) error) error {
		if r.Messages == 0 {
			return nil
		}
		return config.Copy(ctx, c.from, func(d *config.Copied) error {
			c.messages++
			if d.Deletes() {
				return nil
			}
			return add(d.Key, d.Data)
		})
	})
}

// copyLog copies the messages that the state database has not stored.
func (c *bringing) copyLog(ctx context.Context, partition int) error {
	name := eventlog.Stored(partition).Name
	next, err := state.StoredPosition(c.found.db, partition)
	if err != nil {
		return err
	}
	next = max(next, 1)
	r := c.found.stream(name).report
	if r.Messages == 0 {
		next = max(next, r.Last+1)
	}
	return eventlog.Refill(ctx, c.to, partition, c.found.id.Partitions, next, func(add func([]byte) error) error {
		if r.Messages == 0 || r.Last < next {
			return nil
		}
		return c.from.Each(ctx, name, next, func(m *broker.Message) error {
			if m.Seq != next {
				return fmt.Errorf("message %d of the event log's partition %d comes instead of %d", m.Seq, partition, next)
			}
			next++
			c.messages++
			return add(m.Data)
		})
	})
}

// removeAlone removes the streams of a backend that was alone, once all is in the cluster and folded.
func (b *Backend) removeAlone(s *storage) {
	if !exists(s.dir.alone()) {
		return
	}
	if err := errors.Join(os.RemoveAll(s.dir.alone()), blocks.SyncDir(s.dir.path)); err != nil {
		b.log.Warn("the streams of a backend that was alone are not needed any more, and could not be removed: "+
			"the next start tries again", "dir", s.dir.alone(), "err", err)
		return
	}
	b.log.Info("the streams of the backend that was alone are in the cluster and were removed", "dir", s.dir.alone())
}
