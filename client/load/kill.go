package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// Begin is called at the beginning of the measured part with its length, 0 if it has no end. From then on the turns of
// each agent are counted. The agents that are to be killed stop one by one, evenly over that time.
func (f *Fleet) Begin(length time.Duration) {
	for _, a := range f.agents {
		a.mu.Lock()
		a.before = a.delivered
		a.mu.Unlock()
	}
	if victims := f.victims(); len(victims) > 0 {
		f.running.Go(func() { f.killAll(victims, length) })
	}
}

// victims returns the agents to kill, in their order. All parts of a group together have the share of the options.
func (f *Fleet) victims() []*simAgent {
	upTo := func(index int) int { return int(math.Round(f.opts.KillAgents * float64(index-1))) }
	n := upTo(f.opts.First+f.opts.Count) - upTo(f.opts.First)
	victims := make([]*simAgent, 0, n)
	for _, i := range f.random().Perm(len(f.agents))[:n] {
		victims = append(victims, f.agents[i])
	}
	return victims
}

// random returns random numbers that are the same in each run with the same seed.
func (f *Fleet) random() *rand.Rand { return rand.New(rand.NewPCG(f.opts.Seed, uint64(f.opts.First))) }

// killAll divides a time into equal parts, and kills an agent at some moment of each.
func (f *Fleet) killAll(victims []*simAgent, length time.Duration) {
	begin, part := time.Now(), length/time.Duration(len(victims))
	random := f.random()
	for i, a := range victims {
		at := begin.Add(time.Duration(i)*part + time.Duration(random.Float64()*float64(part)))
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(time.Until(at)):
		}
		f.kill(a)
	}
}

// kill ends an agent for good, as if its host had crashed: without a close frame, and with all that it has not sent.
// Answers that wait, or whose write or acknowledgement is not complete, are lost and do not count.
func (f *Fleet) kill(a *simAgent) {
	a.mu.Lock()
	conn := a.conn
	a.dead, a.conn, a.configured, a.writing = true, nil, false, time.Time{}
	a.unacked, a.held, a.plan, a.delayed = nil, nil, nil, nil
	f.planChanged(a)
	a.mu.Unlock()
	f.measures.killed.Add(1)
	if conn != nil {
		f.measures.connected.Add(-1)
		conn.Abort()
	}
}

func (a *simAgent) killed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead
}
