package filter

import (
	"context"
	"errors"
	"time"
)

const (
	// quickTotal bounds the CPU time of a question in a quick lane. One that needs more is asked again in a slow lane.
	quickTotal = 2 * slow
	// longFor is how long a definition avoids the quick lanes after it needed more than quickTotal.
	longFor = time.Minute
	// maxQuick bounds a definition in the quick lanes, in bytes: the compiler cannot be interrupted.
	maxQuick = 64 << 10
	// retryWait is how long, at least, a question whose worker died waits for another. maxRetries bounds its retries.
	retryWait, maxRetries = 5 * time.Second, 3
)

// job is a question about some or all sources of a definition.
type job struct {
	by   Definer
	def  *definition
	pace *pace
	text func(i int) string // returns a source
	// question returns the question about some sources, for a quick lane or for a slow one.
	question func(only []int, quick bool) *asked
	// got takes the answers as they come. It returns the sources that the worker had no time for, and whether to
	// continue.
	got  func(only []int, body []byte, err error) (left []int, more bool)
	wait time.Duration // bounds the wait for a free worker
}

// lane returns the lane for sources: suspects are separate from all others.
func (p *Pool) lane(j *job, only []int, quick bool) lane {
	for _, i := range only {
		if died, _ := p.suspicion(j.by.Namespace, j.def.keys[i]); died {
			return laneSuspect
		}
	}
	switch mutator := j.by.Kind == "mutator"; {
	case mutator && quick:
		return laneMutator
	case mutator:
		return laneMutators
	case quick:
		return laneQuick
	}
	return laneNew
}

func (p *Pool) askAbout(ctx context.Context, of lane, j *job, only []int, fresh bool, wait time.Duration) ([]byte, error) {
	a := j.question(only, of == laneQuick || of == laneMutator)
	a.namespace, a.def, a.fresh = j.by.Namespace, j.def, fresh
	return p.ask(ctx, of, a, wait)
}

// run asks about sources. Sources that a worker of a quick lane has no time for are asked again in a slow lane. If the worker
// dies, each source is asked again on its own.
func (p *Pool) run(ctx context.Context, j *job, only []int) {
	quick := p != nil && j.pace.quick() && len(j.def.body) <= maxQuick && !p.keptApart(j.by.Namespace)
	for len(only) > 0 {
		of := p.lane(j, only, quick)
		quick = of == laneQuick || of == laneMutator
		body, err := p.askAbout(ctx, of, j, only, false, j.wait)
		if died := (*diedError)(nil); errors.As(err, &died) {
			p.retry(ctx, j, only, died)
			return
		}
		left, more := j.got(only, body, err)
		switch {
		case err != nil || !more:
			return
		case len(left) == 0:
			return
		case quick:
			j.pace.wasLong()
		case len(left) == len(only): // a slow lane's whole time was not enough for one source
			j.got(left, nil, errTimeout)
			return
		}
		only, quick = left, false
	}
}

// retry asks about each source on its own after the worker died: that finds the deadly source, and the others get their
// answers.
func (p *Pool) retry(ctx context.Context, j *job, only []int, died *diedError) {
	for n := range only {
		one := only[n : n+1]
		body, err := p.again(ctx, j, one, died, len(only) > 1)
		left, more := j.got(one, body, err)
		if err == nil && len(left) > 0 {
			_, more = j.got(left, nil, errTimeout)
		}
		if !more {
			return
		}
	}
}

// again asks about one source after a worker died with it. A death counts against the source only if the process was
// new and had no other question: earlier questions may have damaged the process, and others beside it may have killed
// it. So a source that the worker was busy with is asked in a new process. A source that only waited for its turn is
// not.
func (p *Pool) again(ctx context.Context, j *job, one []int, died *diedError, several bool) (body []byte, err error) {
	key := j.def.keys[one[0]]
	fresh, suspected := died.first && !several, died.first
	for range maxRetries {
		if died.blame && !several {
			p.blame(j.by, j.text(one[0]), key, died.why)
			return nil, died
		}
		if _, why := p.suspicion(j.by.Namespace, key); why != nil {
			return nil, why
		}
		of := p.lane(j, one, false)
		if suspected {
			of = laneSuspect
		}
		p.metrics.retries.Inc()
		body, err = p.askAbout(ctx, of, j, one, fresh, max(j.wait, retryWait))
		if !errors.As(err, &died) {
			return body, err
		}
		several = false
		fresh, suspected = fresh || died.first, suspected || died.first
	}
	if died.blame {
		p.blame(j.by, j.text(one[0]), key, died.why)
	}
	return nil, died
}
