package metric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/lapwing-monitoring/lapwing/metric/member"
	"github.com/lapwing-monitoring/lapwing/metric/series"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// This file hands series over: after a change of the members, the first of a series' old owners that is there sends its
// history to the owners that did not have it. What the old owners have stays until its retention ends. A handover that
// is interrupted begins again, which does no harm: the same values replace each other.

// questionHistory carries histories of series.
const questionHistory = "metric-history"

const (
	// handoverSeries is how many series are read at a time.
	handoverSeries = 20
	// historyBytes is from which size on histories are sent, before compression; historyPoints bounds a part of one.
	historyBytes, historyPoints = 1 << 20, 100_000
	// historyTimeout is how long a member has to answer.
	historyTimeout = 8 * time.Second
	// commitPoints is from how many points on a member writes what it was sent.
	commitPoints = 1_000_000
	// maxHistory bounds the histories in one question before compression.
	maxHistory = 16 << 20
	// busyPause is the time between two questions to a member that is writing.
	busyPause = time.Second
)

// history is points of one archive of a series.
type history struct {
	Name         string
	Step, Points int64  // of the archive
	Times        []byte // as in seriesAnswer, but in seconds
	Values       []byte
}

// historyQuestion is histories to keep, or without any asks whether those of a generation are written.
type historyQuestion struct {
	Version    int
	Histories  []history
	Generation uint64
}

// historyAnswer says how far a member is.
type historyAnswer struct {
	// Life changes when what was not written is lost.
	Life uint64
	// Generation is that of the histories of the question.
	Generation uint64
	// Busy says that the histories were not taken, or are not written yet.
	Busy bool
}

// histories writes the histories that other members send.
type histories struct {
	server *Server

	mu         sync.Mutex // guards the fields below
	life       uint64
	open       *store.Import // nil for none
	points     int
	generation uint64 // of open
	written    uint64
	writing    bool
}

// wait returns when no write begins that has looked at the server's life before.
func (h *histories) wait() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.writing
}

// answer answers a member's question.
func (im *histories) answer(_ context.Context, payload []byte) ([]byte, error) {
	raw, err := unpack(payload, maxHistory)
	if err != nil {
		return nil, fmt.Errorf("read histories: %w", err)
	}
	q := &historyQuestion{}
	if err := msgpack.Unmarshal(raw, q); err != nil {
		return nil, fmt.Errorf("read histories: %w", err)
	}
	if q.Version > questionVersion {
		return nil, fmt.Errorf("the histories have version %d, and this member knows version %d: upgrade it",
			q.Version, questionVersion)
	}
	a, err := im.take(q)
	if err != nil {
		return nil, err
	}
	return msgpack.Marshal(a)
}

func (im *histories) take(q *historyQuestion) (*historyAnswer, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.life == 0 {
		im.life = rand.Uint64() | 1
	}
	a := &historyAnswer{Life: im.life, Generation: im.generation}
	if len(q.Histories) == 0 {
		if a.Busy = im.written < q.Generation; a.Busy {
			im.write()
		}
		return a, nil
	}
	if im.writing {
		a.Busy = true
		return a, nil
	}
	if im.open == nil {
		im.open = im.server.store.NewImport()
		im.generation++
		a.Generation = im.generation
	}
	for i := range q.Histories {
		h := &q.Histories[i]
		times, err := unpackTimes(h.Times)
		if err != nil {
			return nil, fmt.Errorf("read the history of %s: %w", h.Name, err)
		}
		values := unpackFloats(h.Values)
		if len(values) != len(times) {
			return nil, fmt.Errorf("read the history of %s: %d times and %d values", h.Name, len(times), len(values))
		}
		points := make([]store.Point, len(times))
		for k, t := range times {
			points[k] = store.Point{Time: t, Value: values[k]}
		}
		err = im.open.Add(im.server.handovers.life, h.Name, series.Archive{Step: h.Step, Points: h.Points}, points)
		if errors.Is(err, store.ErrStopped) {
			return nil, err
		}
		if err != nil { // sent again it would be the same
			im.server.rare.Error("the history of a series that another member has sent is not stored", "",
				"series", h.Name, "err", err)
			continue
		}
		im.server.index.Add(h.Name)
		im.points += len(points)
	}
	if im.points >= commitPoints {
		im.write()
	}
	return a, nil
}

// write writes what was added, in the background. mu is locked.
func (im *histories) write() {
	if im.writing || im.open == nil || im.server.handovers.life.Err() != nil {
		return
	}
	im.writing = true
	open, generation, points := im.open, im.generation, im.points
	im.open, im.points = nil, 0
	im.server.handovers.running.Go(func() {
		err := open.Commit(im.server.handovers.life)
		im.mu.Lock()
		defer im.mu.Unlock()
		im.writing = false
		if err != nil {
			im.life = rand.Uint64() | 1
			if im.server.handovers.life.Err() == nil {
				im.server.rare.Error("the history of series that other members have sent is not stored, they send it again", "",
					"err", err)
			}
			return
		}
		im.written = generation
		im.server.handovers.received.Add(float64(points))
	})
}

// handovers are the figures of handing over, and what wakes it.
type handovers struct {
	life     context.Context
	end      context.CancelFunc
	running  sync.WaitGroup
	fresh    bool // the store was empty at the start, and nothing was handed over before
	wake     chan struct{}
	loaded   chan struct{} // closed when the index has the names of the store
	left     prometheus.Gauge
	sent     prometheus.Counter
	received prometheus.Counter
}

func newHandovers(r prometheus.Registerer) *handovers {
	h := &handovers{wake: make(chan struct{}, 1), loaded: make(chan struct{})}
	h.life, h.end = context.WithCancel(context.Background())
	h.left = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lapwing_metric_handover_series", Help: "Series whose history is still to be sent to other members.",
	})
	h.sent = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_metric_handover_series_sent_total", Help: "Series whose history another member has taken.",
	})
	h.received = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_metric_handover_points_received_total",
		Help: "Points of the history of series that other members have sent and that are stored.",
	})
	if r != nil {
		r.MustRegister(h.left, h.sent, h.received)
	}
	return h
}

// stopHandovers ends what runs here of handovers, before the store stops.
func (s *Server) stopHandovers(context.Context) error {
	s.handovers.end()
	s.histories.wait() // a write that begins has looked at life before
	s.handovers.running.Wait()
	return nil
}

// startHandovers looks whether there is anything to hand over, and begins.
func (s *Server) startHandovers() error {
	h := s.handovers
	if _, err := os.Stat(s.placedFile()); errors.Is(err, os.ErrNotExist) {
		h.fresh = true
		if err := s.store.Names(h.life, func(string) bool { h.fresh = false; return false }); err != nil {
			return fmt.Errorf("look for stored series: %w", err)
		}
	}
	h.running.Go(s.handOver)
	return nil
}

// changed says that the members may have changed.
func (h *handovers) changed() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (s *Server) placedFile() string { return filepath.Join(s.opts.Dir, "members", "placed.json") }

// placed returns the members on whom the stored series were last placed. Before the first handover a member has its
// series for itself.
func (s *Server) placed() []string {
	var ids []string
	raw, err := os.ReadFile(s.placedFile())
	if err == nil {
		err = json.Unmarshal(raw, &ids)
	}
	if err != nil || len(ids) == 0 {
		return []string{s.opts.Cluster.Self}
	}
	return ids
}

func (s *Server) savePlaced(ids []string) error {
	raw, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("encode the list of owners: %w", err)
	}
	if err := os.WriteFile(s.placedFile()+".new", raw, 0o600); err != nil {
		return fmt.Errorf("write the list of owners: %w", err)
	}
	if err := os.Rename(s.placedFile()+".new", s.placedFile()); err != nil {
		return fmt.Errorf("write the list of owners: %w", err)
	}
	return nil
}

// handOver hands series over whenever the members have changed.
func (s *Server) handOver() {
	select {
	case <-s.handovers.loaded:
	case <-s.handovers.life.Done():
		return
	}
	var failed map[string]bool // members that have not taken all in the last handover to target; nil for all
	var target []string
	delay, again := s.opts.Cluster.HandoverDelay, s.opts.Cluster.HandoverAgain
	wait := delay
	for {
		select {
		case <-time.After(wait):
		case <-s.handovers.life.Done():
			return
		}
		now := s.members.Placement()
		if !slices.Equal(target, now.IDs()) {
			target, failed = now.IDs(), nil
		}
		if s.handovers.fresh {
			if err := s.savePlaced(target); err != nil {
				s.rare.Error("series will be handed over again", "", "err", err)
			}
			s.handovers.fresh = false
		}
		before := s.placed()
		if slices.Equal(before, target) {
			select {
			case <-s.handovers.wake:
				wait = delay
				continue
			case <-s.handovers.life.Done():
				return
			}
		}
		h := &handover{
			server: s, before: member.NewPlacement(before), after: now, only: failed, lives: map[string]uint64{},
			generations: map[string]uint64{},
		}
		failed = h.run()
		wait = again
		if failed[s.opts.Cluster.Self] {
			failed = nil
			continue
		}
		if s.handovers.life.Err() == nil && len(failed) == 0 && slices.Equal(target, s.members.Placement().IDs()) {
			wait = 0
			if err := s.savePlaced(target); err != nil {
				s.rare.Error("series will be handed over again", "", "err", err)
				wait = again
			}
		}
	}
}

// handover is one pass over all series.
type handover struct {
	server        *Server
	before, after *member.Placement
	only          map[string]bool // members to send to; nil for all
	failed        map[string]bool

	waiting     map[string][]history // by member
	bytes       map[string]int
	lives       map[string]uint64
	generations map[string]uint64
}

// work is a series and the members to which its history goes.
type work struct {
	name string
	to   []string
}

// run sends what is to be sent, and returns the members that have not taken all.
func (h *handover) run() (failed map[string]bool) {
	s := h.server
	h.failed, h.waiting, h.bytes = map[string]bool{}, map[string][]history{}, map[string]int{}
	var todo []work
	members, self := s.members.Members()
	there := map[string]bool{}
	for i, m := range members {
		there[m.ID] = i == self || !m.Away
	}
	err := s.index.All(s.handovers.life, func(name string) bool {
		if to := h.targets(name, there); len(to) > 0 {
			todo = append(todo, work{name, to})
		}
		return s.handovers.life.Err() == nil
	})
	defer s.handovers.left.Set(0)
	if len(todo) > 0 {
		s.opts.Logger.Info("the members have changed: series are handed over", "series", len(todo))
	}
	for some := range slices.Chunk(todo, handoverSeries) {
		s.handovers.left.Set(float64(len(todo)))
		todo = todo[len(some):]
		began := time.Now()
		if err = errors.Join(err, h.read(some)); err != nil || s.handovers.life.Err() != nil {
			break
		}
		h.pause(min(time.Since(began), time.Second)) // half of the time is for other work
		if !slices.Equal(h.after.IDs(), s.members.Placement().IDs()) {
			h.failed[s.opts.Cluster.Self] = true // it begins again with the members of then
			return h.failed
		}
	}
	for _, id := range h.after.IDs() {
		h.send(id)
		h.finish(id)
	}
	if err != nil && s.handovers.life.Err() == nil {
		h.failed[s.opts.Cluster.Self] = true
		s.rare.Error("series could not be read to hand them over, it is tried again", "", "err", err)
	}
	return h.failed
}

// targets returns the members to which this one sends a series: the new owners, if this one is the first of the old
// that is there.
func (h *handover) targets(name string, there map[string]bool) (to []string) {
	s := h.server
	var buf [8]int
	var old []string
	sender := ""
	for _, i := range h.before.Owners(name, s.members.Factor(), buf[:0]) {
		id := h.before.IDs()[i]
		old = append(old, id)
		if sender == "" && there[id] {
			sender = id
		}
	}
	if sender != s.opts.Cluster.Self {
		return nil
	}
	for _, i := range h.after.Owners(name, s.members.Factor(), buf[:0]) {
		id := h.after.IDs()[i]
		if slices.Contains(old, id) || id == s.opts.Cluster.Self || h.only != nil && !h.only[id] {
			continue
		}
		if !there[id] {
			h.failed[id] = true
			continue
		}
		to = append(to, id)
	}
	return to
}

// read reads the histories of some series, and sends them when they are enough.
func (h *handover) read(some []work) error {
	s := h.server
	now := s.opts.Now().Unix()
	type key struct{ step, points int64 }
	groups := map[key][]string{}
	to := map[string][]string{}
	for _, w := range some {
		to[w.name] = w.to
		for _, a := range s.policy(w.name).Archives {
			k := key{a.Step, a.Points}
			groups[k] = append(groups[k], w.name)
		}
	}
	for k, names := range groups {
		// With this begin, Fetch takes the archive.
		ranges, err := s.store.FetchMany(s.handovers.life, names, now-k.step*k.points, now, now)
		if err != nil {
			return err
		}
		for i := range ranges {
			h.add(&ranges[i], k.step*k.points/ranges[i].Step, to[ranges[i].Name])
		}
	}
	s.handovers.sent.Add(float64(len(some)))
	return nil
}

// add cuts a range into histories.
func (h *handover) add(r *series.Range, points int64, to []string) {
	var times []int64
	var values []float64
	flush := func() {
		if len(times) == 0 {
			return
		}
		one := history{r.Name, r.Step, points, packTimes(times), packFloats(values)}
		times, values = times[:0], values[:0]
		for _, id := range to {
			h.waiting[id] = append(h.waiting[id], one)
			if h.bytes[id] += len(one.Name) + len(one.Times) + len(one.Values); h.bytes[id] >= historyBytes {
				h.send(id)
			}
		}
	}
	for i, v := range r.Values {
		if math.IsNaN(v) {
			continue
		}
		times, values = append(times, r.Start+int64(i)*r.Step), append(values, v)
		if len(times) == historyPoints {
			flush()
		}
	}
	flush()
}

// send sends a member what waits for it.
func (h *handover) send(id string) {
	histories := h.waiting[id]
	h.waiting[id], h.bytes[id] = nil, 0
	if len(histories) == 0 || h.failed[id] {
		return
	}
	h.ask(id, &historyQuestion{Version: questionVersion, Histories: histories})
}

// finish waits until a member has written what it was sent.
func (h *handover) finish(id string) {
	if h.generations[id] > 0 && !h.failed[id] {
		h.ask(id, &historyQuestion{Version: questionVersion, Generation: h.generations[id]})
	}
}

// ask asks a member until it is not busy. A member that does not answer, or has lost what it was sent, gets all again.
func (h *handover) ask(id string, q *historyQuestion) {
	s := h.server
	raw, err := msgpack.Marshal(q)
	if err != nil {
		h.fail(id, err)
		return
	}
	payload := s2.Encode(nil, raw)
	for tries := 0; s.handovers.life.Err() == nil; {
		a, err := h.askOnce(id, payload)
		switch {
		case err != nil:
			if tries++; tries == 3 {
				h.fail(id, err)
				return
			}
		case h.lives[id] != 0 && h.lives[id] != a.Life:
			h.fail(id, errors.New("it has lost what it was sent"))
			return
		default:
			tries = 0
			h.lives[id] = a.Life
			if !a.Busy {
				h.generations[id] = max(h.generations[id], a.Generation)
				return
			}
		}
		h.pause(busyPause)
	}
	h.failed[id] = true
}

func (h *handover) askOnce(id string, payload []byte) (*historyAnswer, error) {
	ctx, cancel := context.WithTimeout(h.server.handovers.life, historyTimeout)
	defer cancel()
	raw, err := h.server.opts.Cluster.Ask(ctx, id, questionHistory, payload)
	if err != nil {
		return nil, err
	}
	a := &historyAnswer{}
	if err := msgpack.Unmarshal(raw, a); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return a, nil
}

func (h *handover) fail(id string, err error) {
	h.failed[id] = true
	h.server.rare.Warn("a member has not taken the history of series, it is sent again", id, "member", id, "err", err)
}

func (h *handover) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.server.handovers.life.Done():
	}
}
