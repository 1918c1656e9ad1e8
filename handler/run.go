package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// maxTries is how often a delivery is tried in all while its failures are temporary.
	maxTries = 3
	// maxRetryAfter is the longest wait that a server may ask for.
	maxRetryAfter = 30 * time.Second
	// defaultTimeout is that of all handlers but commands.
	defaultTimeout = 60 * time.Second
	// maxLogged is how much of the output of a command or the answer of a server is logged.
	maxLogged = 1024
)

// The results of a delivery, as the metrics name them.
const (
	resultOK      = "ok"
	resultFailed  = "failed"  // it ran, and says it failed
	resultTimeout = "timeout" // it did not end in time
	resultError   = "error"   // it could not be run
)

// statusError says that a handler ran and reports failure: a command by its exit status, a server by its answer.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.status) }

// temporaryError is one after which it is worth to try again.
type temporaryError struct {
	err   error
	after time.Duration // the least wait
}

func (e *temporaryError) Error() string { return e.err.Error() }
func (e *temporaryError) Unwrap() error { return e.err }

// run runs a delivery and notes that it is finished. False means that Stop came first, and that it is not.
func (d *Dispatcher) run(it *item) (finished bool) {
	h, ok := d.lookup(it.Namespace, it.Handler)
	if !ok {
		d.logRun(slog.LevelDebug, "delivery dropped: its handler was deleted", it)
		d.metrics.dropped.Inc()
		d.finish(it, "dropped")
		return true
	}
	begin := time.Now()
	if it.Received > 0 {
		d.metrics.startSeconds.WithLabelValues(it.Handler).Observe(max(0, float64(begin.UnixMilli()-it.Received)/1000))
	}
	output, err := d.try(h, it.Delivery)
	if err != nil && d.ctx.Err() != nil || errors.Is(err, errStopping) {
		return false
	}
	result := resultOf(err)
	d.metrics.runs.WithLabelValues(it.Handler, result).Inc()
	d.metrics.seconds.WithLabelValues(it.Handler).Observe(time.Since(begin).Seconds())
	output = output[:min(len(output), maxLogged)]
	if err != nil {
		d.logRun(slog.LevelWarn, "handler failed", it, "err", err, "output", string(output))
	} else {
		d.logRun(slog.LevelDebug, "handler ran", it, "output", string(output))
	}
	d.finish(it, result)
	return true
}

func (d *Dispatcher) logRun(level slog.Level, msg string, it *item, attrs ...any) {
	if d.log.Enabled(d.ctx, level) {
		d.log.With("namespace", it.Namespace, "handler", it.Handler, "entity", it.Entity, "check", it.Check, "delivery", it.ID).Log(d.ctx, level, msg, attrs...)
	}
}

func (d *Dispatcher) finish(it *item, result string) {
	it.ledger.finish(it)
	if d.onFinish != nil {
		d.onFinish(it.Delivery, result)
	}
}

var errStopping = errors.New("stopping")

// try runs a delivery, more than once if its failures are temporary.
func (d *Dispatcher) try(h *resource.Handler, dl *Delivery) (output []byte, err error) {
	wait := d.opts.Backoff
	for n := 1; ; n++ {
		output, err = d.runOnce(d.ctx, h, dl)
		var temporary *temporaryError
		if n == maxTries || !errors.As(err, &temporary) {
			return output, err
		}
		d.metrics.retries.WithLabelValues(dl.Handler).Inc()
		timer := time.NewTimer(max(wait, min(temporary.after, maxRetryAfter)))
		select {
		case <-timer.C:
		case <-d.stopping:
			timer.Stop()
			return nil, errStopping
		}
		wait *= 2
	}
}

func (d *Dispatcher) runKind(ctx context.Context, h *resource.Handler, dl *Delivery) (output []byte, err error) {
	switch h.Type {
	case "pipe":
		return d.runPipe(ctx, h, dl)
	case "webhook":
		return d.runWebhook(ctx, h, dl)
	case "tcp":
		return nil, runTCP(ctx, h, dl)
	case "udp":
		return nil, runUDP(ctx, h, dl)
	}
	return nil, fmt.Errorf("handlers of type %q cannot be run", h.Type)
}

func resultOf(err error) string {
	var status *statusError
	var network net.Error
	switch {
	case err == nil:
		return resultOK
	case errors.As(err, &status):
		return resultFailed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return resultTimeout
	}
	return resultError
}

// timeout is a handler's own, or the default of those that are no commands.
func timeout(h *resource.Handler) time.Duration {
	if h.Timeout == 0 {
		return defaultTimeout
	}
	return time.Duration(h.Timeout) * time.Second
}
