// Package points sends Graphite points as a fleet of hosts does, and checks afterwards that a server has all of them.
//
// Each host has one TCP connection and the same metrics; in each round it sends one line for each of them. What a metric's
// value is follows from its host, its number and the round, so Verify can tell every value without a record of the run.
// `lapwing load points` is its command.
package points

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options describes a run. The zero value of a field is its default.
type Options struct {
	// Address is where plaintext lines go, HOST:PORT. Required.
	Address string
	// Hosts is the number of connections, Metrics the number of series of each host. Default 1000 and 250.
	Hosts, Metrics int
	// Interval is the time between a host's rounds, and between the timestamps of a series. Default 10 s.
	Interval time.Duration
	// Duration is how long to send. Default 1 minute.
	Duration time.Duration
	// Unpaced sends rounds as fast as the server takes them; timestamps still are Interval apart. A host ends when its
	// timestamps reach the present.
	Unpaced bool
	// Senders is the number of goroutines that send unpaced rounds; each has Hosts/Senders connections. Default 8.
	Senders int
	// Start is the first timestamp, at a multiple of Interval. Default: now, and for an unpaced run Ago before.
	Start time.Time
	// Ago is how long before now an unpaced run begins. Default 1 h.
	Ago time.Duration
	// Prefix is the first node of the names. Default "load".
	Prefix string
	// Aggregates is how many sums over all hosts the server computes by the rules of AggregationRules, one for each of the
	// first metrics. Verify compares them. Default none.
	Aggregates int
	// Progress gets a line a second. Default: none.
	Progress io.Writer
}

// Result is what a run sent.
type Result struct {
	Options Options
	Points  int64
	Bytes   int64
	Elapsed time.Duration
	// Rounds[i] is how many rounds host i sent in whole.
	Rounds []int
	// Late is the longest time by which a paced round was behind its moment.
	Late time.Duration
	// Failed counts connections that ended early, with the first error.
	Failed int
	Err    error
}

func (o *Options) complete() error {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&o.Hosts, 1000)
	set(&o.Metrics, 250)
	set(&o.Senders, 8)
	if o.Hosts < 1 || o.Metrics < 1 || o.Senders < 1 {
		return fmt.Errorf("hosts (%d), metrics (%d) and senders (%d) must be at least 1", o.Hosts, o.Metrics, o.Senders)
	}
	if o.Aggregates < 0 || o.Aggregates > o.Metrics {
		return fmt.Errorf("%d aggregates are not between 0 and the %d metrics of a host", o.Aggregates, o.Metrics)
	}
	if o.Interval == 0 {
		o.Interval = 10 * time.Second
	}
	if o.Interval < time.Second || o.Interval%time.Second != 0 {
		return fmt.Errorf("the interval must be whole seconds, and is %v", o.Interval)
	}
	if o.Duration == 0 {
		o.Duration = time.Minute
	}
	if o.Prefix == "" {
		o.Prefix = "load"
	}
	if o.Start.IsZero() {
		o.Start = time.Now()
		if o.Unpaced {
			o.Start = o.Start.Add(-cmp.Or(o.Ago, time.Hour))
		}
	}
	o.Start = o.Start.Truncate(o.Interval)
	return nil
}

// Name returns the series of a host's metric: PREFIX.host0007.GROUP.mNNN, with ten metrics in a group.
func (o *Options) Name(host, metric int) string {
	return fmt.Sprintf("%s.host%04d.g%02d.m%03d", o.Prefix, host, metric/10, metric)
}

// aggregate returns the series of the sum of a metric over all hosts.
func (o *Options) aggregate(metric int) string { return fmt.Sprintf("%s.all.m%03d", o.Prefix, metric) }

// AggregationRules returns the lines of carbon's aggregation-rules.conf with which a server computes the Aggregates.
func (o Options) AggregationRules() (string, error) {
	if err := o.complete(); err != nil {
		return "", err
	}
	var lines strings.Builder
	for m := range o.Aggregates {
		fmt.Fprintf(&lines, "%s (%d) = sum %s.*.g%02d.m%03d\n", o.aggregate(m), o.Interval/time.Second, o.Prefix, m/10, m)
	}
	return lines.String(), nil
}

// values are what metrics have, as text and as numbers: as collectors of hosts send, mostly small integers and two decimals.
type values struct {
	text   [1000][]byte
	number [1000]float64
}

func newValues() *values {
	var v values
	for i := range v.text {
		v.number[i] = float64(i%100) + float64(i/100)*0.25
		v.text[i] = strconv.AppendFloat(nil, v.number[i], 'f', -1, 64)
	}
	return &v
}

// pick is the place in values of a metric in a round. A third of the metrics never change, a third move among few
// integers, and a third among all values.
func pick(host, metric, round int) int {
	switch metric % 3 {
	case 0:
		return (host + metric) % 100
	case 1:
		return (host + metric + round/3%7) % 100
	}
	return (host*31 + metric*17 + round*(1+metric%5)) % 1000
}

// host is one connection.
type host struct {
	number int
	conn   net.Conn
	names  [][]byte // with the space behind
	rounds int
	buf    []byte
}

func (h *host) round(o *Options, v *values) (int, error) {
	stamp := strconv.AppendInt([]byte{' '}, o.Start.Unix()+int64(h.rounds)*int64(o.Interval/time.Second), 10)
	stamp = append(stamp, '\n')
	h.buf = h.buf[:0]
	for m, name := range h.names {
		h.buf = append(h.buf, name...)
		h.buf = append(h.buf, v.text[pick(h.number, m, h.rounds)]...)
		h.buf = append(h.buf, stamp...)
	}
	n, err := h.conn.Write(h.buf)
	if err == nil {
		h.rounds++
	}
	return n, err
}

// Run connects all hosts, and sends until Duration has passed or ctx ends. Then it closes the connections in order, so that
// the server has read everything when it sees their ends.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Address == "" {
		return nil, errors.New("the address that points go to is missing")
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	hosts := make([]*host, o.Hosts)
	defer func() {
		for _, h := range hosts {
			if h != nil {
				_ = h.conn.Close()
			}
		}
	}()
	for i := range hosts {
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", o.Address)
		if err != nil {
			return nil, fmt.Errorf("connect host %d of %d: %w", i, o.Hosts, err)
		}
		hosts[i] = &host{number: i, conn: conn}
		for m := range o.Metrics {
			hosts[i].names = append(hosts[i].names, append([]byte(o.Name(i, m)), ' '))
		}
	}
	r := &run{o: &o, values: newValues(), begin: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	var senders sync.WaitGroup
	each := 1
	if o.Unpaced {
		each = (o.Hosts + o.Senders - 1) / o.Senders
	}
	for first := 0; first < len(hosts); first += each {
		mine := hosts[first:min(first+each, len(hosts))]
		senders.Go(func() { r.send(ctx, mine) })
	}
	stop := context.AfterFunc(ctx, func() { // a write that the server holds up ends soon after
		for _, h := range hosts {
			_ = h.conn.SetWriteDeadline(time.Now().Add(15 * time.Second))
		}
	})
	defer stop()
	done := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() { r.report(done) })
	senders.Wait()
	close(done)
	progress.Wait()
	result := &Result{
		Options: o, Points: r.points.Load(), Bytes: r.bytes.Load(), Elapsed: time.Since(r.begin),
		Late: time.Duration(r.late.Load()), Failed: r.failed, Err: r.err,
	}
	for _, h := range hosts {
		result.Rounds = append(result.Rounds, h.rounds)
		if tcp, ok := h.conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}
	for _, h := range hosts { // the server closes its side once it has read all
		_ = h.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, _ = io.Copy(io.Discard, h.conn)
	}
	return result, nil
}

// run is the state that the senders share.
type run struct {
	o      *Options
	values *values
	begin  time.Time
	points atomic.Int64
	bytes  atomic.Int64
	late   atomic.Int64

	mu     sync.Mutex // guards the fields below
	failed int
	err    error
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	if r.err == nil {
		r.err = err
	}
}

// send plays hosts one round after the other: paced, each at its own moment in the interval.
func (r *run) send(ctx context.Context, hosts []*host) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for ctx.Err() == nil && len(hosts) > 0 {
		for i := 0; i < len(hosts); i++ {
			h := hosts[i]
			if !r.o.Unpaced {
				moment := r.begin.Add(time.Duration(h.rounds)*r.o.Interval + r.o.Interval*time.Duration(h.number)/time.Duration(r.o.Hosts))
				timer.Reset(time.Until(moment))
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
				if late := int64(time.Since(moment)); late > r.late.Load() {
					r.late.Store(late)
				}
			} else if ctx.Err() != nil {
				return
			} else if r.o.Start.Add(time.Duration(h.rounds) * r.o.Interval).After(time.Now()) {
				hosts = append(hosts[:i:i], hosts[i+1:]...) // it has reached the present
				i--
				continue
			}
			n, err := h.round(r.o, r.values)
			r.bytes.Add(int64(n))
			if err != nil {
				r.fail(fmt.Errorf("host %d: %w", h.number, err))
				hosts = append(hosts[:i:i], hosts[i+1:]...)
				i--
				continue
			}
			r.points.Add(int64(r.o.Metrics))
		}
	}
}

func (r *run) report(done <-chan struct{}) {
	if r.o.Progress == nil {
		return
	}
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	last, at := int64(0), r.begin
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			n := r.points.Load()
			fmt.Fprintf(r.o.Progress, "%5.0f s: %d points, %.0f points/s\n", now.Sub(r.begin).Seconds(), n,
				float64(n-last)/now.Sub(at).Seconds())
			last, at = n, now
		}
	}
}

// same reports whether two values are the same but for the rounding of sums.
func same(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b))
}
