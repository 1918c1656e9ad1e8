package handler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
)

type metrics struct {
	runs         *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	startSeconds *prometheus.HistogramVec
	retries      *prometheus.CounterVec
	handed       *prometheus.CounterVec
	dead         *prometheus.CounterVec
	deadDropped  prometheus.Counter
	dropped      prometheus.Counter
	recalled     prometheus.Counter
	escalated    *prometheus.CounterVec
	storeErrors  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, d *Dispatcher) metrics {
	byHandler := []string{"handler"}
	m := metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_handler_runs_total", Help: "Deliveries that are done with, by handler and result.",
		}, []string{"handler", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lapwing_handler_duration_seconds", Help: "How long an attempt took, by handler.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, byHandler),
		startSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lapwing_handler_start_seconds", Help: "From the receipt of an event to the start of its handler's first try, by handler.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18), // to 131 s
		}, byHandler),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_handler_retries_total",
			Help: "Attempts that failed and will be followed by another, by handler.",
		}, byHandler),
		handed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_handler_handed_over_total",
			Help: "Deliveries passed to the partition whose owner runs their handler, by handler.",
		}, byHandler),
		dead: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_handler_dead_total", Help: "Deliveries that became dead letters, by handler.",
		}, byHandler),
		deadDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_handler_dead_dropped_total",
			Help: "Dead letters that were not kept because there are too many.",
		}),
		recalled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_handler_recalled_total",
			Help: "Attempts that ended because this member of the cluster had to stop acting. They are made again, by it or another one.",
		}),
		escalated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_handler_escalation_steps_total",
			Help: "Steps of escalations that were taken, by handler and result: notified, or no_one.",
		}, []string{"handler", "result"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_handler_dropped_total", Help: "Deliveries dropped because their handler was deleted.",
		}),
		storeErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_handler_store_errors_total", Help: "Failures to store, read or remove deliveries.",
		}),
	}
	if r != nil {
		r.MustRegister(
			m.runs, m.seconds, m.startSeconds, m.retries, m.handed, m.dead, m.deadDropped, m.dropped, m.recalled, m.escalated, m.storeErrors,
			queueCollector{d},
		)
	}
	return m
}

// know sets a handler's counts to zero.
func (m *metrics) know(handler string) {
	for _, result := range []string{send.KindOK, send.KindFailed, send.KindTimeout, send.KindError} {
		m.runs.WithLabelValues(handler, result)
	}
	m.retries.WithLabelValues(handler)
	m.handed.WithLabelValues(handler)
	m.dead.WithLabelValues(handler)
	m.seconds.WithLabelValues(handler)
	m.startSeconds.WithLabelValues(handler)
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"handler"}, nil)
}

var (
	dispatchedDesc = describe("lapwing_handler_dispatched_total", "Deliveries passed to a handler's queue, by handler.")
	spillsDesc     = describe("lapwing_handler_spilled_total",
		"Deliveries that went to disk because their handler's queue was full, by handler.")
	depthDesc  = describe("lapwing_handler_queue_depth", "Deliveries in memory whose turn it is or will be, by handler.")
	parkedDesc = describe("lapwing_handler_parked", "Deliveries that wait for a time, for a group, or behind such a one, "+
		"and those of them that are due and have not ended, by handler.")
	waitingDesc  = describe("lapwing_handler_waiting", "Checks of which a delivery waits for another attempt or another time, by handler.")
	retryingDesc = describe("lapwing_handler_retrying",
		"Deliveries of which an attempt has failed and that have not ended, by handler.")
	groupsDesc  = describe("lapwing_handler_groups", "Groups that have not gone out, by handler.")
	lettersDesc = describe("lapwing_handler_dead_letters", "Dead letters that are kept, by handler.")
	strayDesc   = describe("lapwing_handler_dead_letters_without_handler",
		"Dead letters that are kept and whose handler is not defined any more, by handler.")
	bytesDesc = describe("lapwing_handler_queue_bytes", "Their events, by handler.")
	shedDesc  = prometheus.NewDesc("lapwing_handler_shed_total",
		"Deliveries dropped because too many were on disk, by handler and class.", []string{"handler", "class"}, nil)
	spilledDesc = prometheus.NewDesc("lapwing_handler_queue_spilled",
		"Deliveries on disk, waiting for room in the queue, by handler.", []string{"handler"}, nil)
	gaveUpDesc = prometheus.NewDesc("lapwing_handler_escalation_gave_up", "1 for each of the first 100 escalations that have no further step "+
		"while their check still fails, by namespace, handler, entity, check and result: reached (someone), or no_one.",
		[]string{"namespace", "handler", "entity", "check", "result"}, nil)
	gaveUpCountDesc = describe("lapwing_handler_escalations_given_up",
		"Escalations that have no further step while their check still fails, by handler.")
	diskLimitDesc = prometheus.NewDesc("lapwing_handler_queue_disk_limit",
		"Deliveries of one handler that may be on disk before the last class is shed; 0 for any number.", nil, nil)
	ageDesc = describe("lapwing_handler_queue_age_seconds", "Time since the event of the oldest delivery in "+
		"memory was received, by handler; those that wait for a time or a group are not counted.")
	runningDesc = describe("lapwing_handler_running", "Deliveries that are being run, by handler.")
	runAgeDesc  = describe("lapwing_handler_run_age_seconds", "How long the one of them that began first has been running, by handler.")

	queueLimitDesc = prometheus.NewDesc("lapwing_handler_queue_limit", "Deliveries of one handler that memory takes.", nil, nil)
	workersDesc    = prometheus.NewDesc("lapwing_handler_workers",
		"Deliveries of one handler that may run at a time, unless it has a concurrency of its own.", nil, nil)
	concurrencyDesc = describe("lapwing_handler_concurrency",
		"The concurrency that the handler's definition sets, by handler; 0 if it sets none.")
)

// queueCollector reads the queues when metrics are collected. Handlers of the same name in different namespaces are
// summed up; of times the oldest counts, and of concurrencies the highest.
type queueCollector struct{ d *Dispatcher }

func (c queueCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		dispatchedDesc, spillsDesc, depthDesc, bytesDesc, spilledDesc, ageDesc, runningDesc, runAgeDesc, queueLimitDesc, workersDesc,
		parkedDesc, waitingDesc, retryingDesc, groupsDesc, lettersDesc, strayDesc, shedDesc, diskLimitDesc, concurrencyDesc,
		gaveUpDesc, gaveUpCountDesc,
	} {
		ch <- d
	}
}

// queueFigures are those of all queues of one name.
type queueFigures struct {
	added, spills                  uint64
	depth, bytes, spilled, running int
	parked, waiting, groups        int
	retrying, concurrency          int
	shed                           [delivery.Classes]uint64
	gaveUp                         int
	received                       int64     // Unix milliseconds; of the oldest
	begin                          time.Time // of the longest run
}

func (c queueCollector) Collect(ch chan<- prometheus.Metric) {
	figures, named := map[string]queueFigures{}, 0
	c.d.mu.RLock()
	for name, q := range c.d.queues {
		f := figures[name.Name]
		before := f.gaveUp
		q.addTo(&f)
		if f.gaveUp > before {
			named += q.nameGivenUp(ch, maxGivenUp-named)
		}
		if h, ok := c.d.lookup(name.Namespace, name.Name); ok {
			f.concurrency = max(f.concurrency, int(h.Concurrency))
		}
		figures[name.Name] = f
	}
	c.d.mu.RUnlock()
	now := time.Now()
	for handler, f := range figures {
		metric := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, t, v, handler)
		}
		age, runAge := 0.0, 0.0
		if f.received > 0 {
			age = max(0, float64(now.UnixMilli()-f.received)/1000)
		}
		if f.running > 0 {
			runAge = now.Sub(f.begin).Seconds()
		}
		metric(dispatchedDesc, prometheus.CounterValue, float64(f.added))
		metric(spillsDesc, prometheus.CounterValue, float64(f.spills))
		metric(depthDesc, prometheus.GaugeValue, float64(f.depth))
		metric(bytesDesc, prometheus.GaugeValue, float64(f.bytes))
		metric(spilledDesc, prometheus.GaugeValue, float64(f.spilled))
		metric(ageDesc, prometheus.GaugeValue, age)
		metric(runningDesc, prometheus.GaugeValue, float64(f.running))
		metric(runAgeDesc, prometheus.GaugeValue, runAge)
		metric(parkedDesc, prometheus.GaugeValue, float64(f.parked))
		metric(waitingDesc, prometheus.GaugeValue, float64(f.waiting))
		metric(retryingDesc, prometheus.GaugeValue, float64(f.retrying))
		metric(groupsDesc, prometheus.GaugeValue, float64(f.groups))
		metric(gaveUpCountDesc, prometheus.GaugeValue, float64(f.gaveUp))
		metric(concurrencyDesc, prometheus.GaugeValue, float64(f.concurrency))
		for c := delivery.Failing; c < delivery.Classes; c++ {
			ch <- prometheus.MustNewConstMetric(shedDesc, prometheus.CounterValue, float64(f.shed[c]), handler, c.String())
		}
	}
	letters, stray := map[string]int{}, map[string]int{}
	for name, n := range c.d.letters.byName() {
		letters[name.Name] += n
		if _, ok := c.d.lookup(name.Namespace, name.Name); !ok {
			stray[name.Name] += n
		}
	}
	for handler, n := range letters {
		ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, float64(n), handler)
		ch <- prometheus.MustNewConstMetric(strayDesc, prometheus.GaugeValue, float64(stray[handler]), handler)
	}
	ch <- prometheus.MustNewConstMetric(queueLimitDesc, prometheus.GaugeValue, float64(c.d.opts.QueueSize))
	ch <- prometheus.MustNewConstMetric(diskLimitDesc, prometheus.GaugeValue, float64(c.d.opts.QueueDisk))
	ch <- prometheus.MustNewConstMetric(workersDesc, prometheus.GaugeValue, float64(c.d.opts.Workers))
}

// addTo adds a queue's figures. The oldest delivery of each pair is the first of its chain.
func (q *queue) addTo(f *queueFigures) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.added += q.added
	f.spills += q.spills
	f.depth += q.changes.count + q.others.count
	f.bytes += q.changes.bytes + q.others.bytes
	f.spilled += q.spilled.sum()
	f.parked += q.parked.sum()
	for c, n := range q.sheds {
		f.shed[c] += n
	}
	f.waiting += len(q.waits)
	f.retrying += q.retrying
	f.groups += len(q.groupWaits) + len(q.sealed)
	ran := func(begin time.Time) {
		if begin.IsZero() {
			return
		}
		if f.running == 0 || begin.Before(f.begin) {
			f.begin = begin
		}
		f.running++
	}
	for _, c := range q.chains {
		if c.gaveUp != "" {
			f.gaveUp++
		}
		it := c.head
		if it == nil || c.index > 0 || c.stopped {
			continue
		}
		if it.Received > 0 && (f.received == 0 || it.Received < f.received) {
			f.received = it.Received
		}
		if !q.away(it) { // or it is being handed over
			ran(it.begin)
		}
	}
	for g := range q.sending {
		ran(g.begin)
	}
}

// maxGivenUp is how many escalations without further steps have series of their own.
const maxGivenUp = 100

// nameGivenUp sends a series for each escalation of the queue that has no further step, up to limit. It returns how many.
func (q *queue) nameGivenUp(ch chan<- prometheus.Metric, limit int) int {
	var list []prometheus.Metric
	q.mu.Lock()
	for p, c := range q.chains {
		if c.gaveUp != "" && len(list) < limit {
			list = append(list, prometheus.MustNewConstMetric(gaveUpDesc, prometheus.GaugeValue, 1,
				q.name.Namespace, q.name.Name, p.entity, p.check, c.gaveUp))
		}
	}
	q.mu.Unlock()
	for _, one := range list { // without the lock: the scrape may be slow to take them
		ch <- one
	}
	return len(list)
}
