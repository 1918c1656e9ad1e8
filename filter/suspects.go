package filter

import (
	"context"
	"errors"
	"time"
)

// Definer is the definition that a source is in.
type Definer struct {
	// Kind is "filter", "mutator", "check" or "asset".
	Kind, Namespace, Name string
}

// SetAside is a source that is not run any more, because workers died of it.
type SetAside struct {
	// Definer is where it was found out. The same source elsewhere in its namespace is not run either.
	Definer
	Source string
	Since  time.Time
	Reason string // of the last death
	key    sourceKey
}

// suspectKey names a suspect: what a source is fed with in one namespace, says nothing about it in another.
type suspectKey struct {
	namespace string
	source    sourceKey
}

// suspect is a source that was blamed within deathMemory, or is set aside.
type suspect struct {
	deaths []time.Time
	aside  SetAside // Since is zero if it is not yet
}

// blame notes that a worker died with a source. It sets the source aside if that was once too often.
func (p *Pool) blame(by Definer, source string, key sourceKey, why string) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.suspects[suspectKey{by.Namespace, key}]
	if s == nil {
		if len(p.suspects) >= maxSuspects {
			p.forgetOld(now)
			p.makeRoom()
		}
		s = &suspect{aside: SetAside{Definer: by, Source: source, key: key}}
		p.suspects[suspectKey{by.Namespace, key}] = s
		p.suspected.Store(int32(len(p.suspects)))
	}
	for len(s.deaths) > 0 && now.Sub(s.deaths[0]) > deathMemory {
		s.deaths = s.deaths[1:]
	}
	s.deaths = append(s.deaths, now)
	if len(s.deaths) < maxDeaths || !s.aside.Since.IsZero() {
		return
	}
	s.aside.Since, s.aside.Reason = now, why
	p.metrics.aside.Inc()
	p.log.Error("expression is set aside: three worker processes died of it; change its definition",
		"kind", by.Kind, "namespace", by.Namespace, "name", by.Name, "source", cut(source), "err", why)
}

// old reports whether nothing is known of a suspect that still counts.
func (s *suspect) old(now time.Time) bool {
	return s.aside.Since.IsZero() && now.Sub(s.deaths[len(s.deaths)-1]) > deathMemory
}

// forgetOld forgets the suspects whose last death is longer ago than deathMemory. Those that are set aside stay.
func (p *Pool) forgetOld(now time.Time) {
	for key, s := range p.suspects {
		if s.old(now) {
			delete(p.suspects, key)
		}
	}
	p.swept = now
	p.suspected.Store(int32(len(p.suspects)))
}

// makeRoom forgets any suspects that are not set aside, until there is room for one.
func (p *Pool) makeRoom() {
	for key, s := range p.suspects {
		if len(p.suspects) < maxSuspects {
			return
		}
		if s.aside.Since.IsZero() {
			delete(p.suspects, key)
		}
	}
}

// suspicion says whether a source of a namespace is a suspect, and whether it is set aside.
func (p *Pool) suspicion(namespace string, key sourceKey) (died, aside bool) {
	if p == nil || p.suspected.Load() == 0 {
		return false, false
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.swept) > sweepEvery {
		p.forgetOld(now)
	}
	s := p.suspects[suspectKey{namespace, key}]
	if s == nil || s.old(now) {
		return false, false
	}
	return true, !s.aside.Since.IsZero()
}

// SetAside lists the sources that are not run any more.
func (p *Pool) SetAside() []SetAside {
	if p.suspected.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []SetAside
	for _, s := range p.suspects {
		if !s.aside.Since.IsZero() {
			list = append(list, s.aside)
		}
	}
	return list
}

// Release has a source run again if it is asked for, such as when nothing defines it any more.
func (p *Pool) Release(s SetAside) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := suspectKey{s.Namespace, s.key}
	if known := p.suspects[key]; known != nil && !known.aside.Since.IsZero() {
		delete(p.suspects, key)
		p.suspected.Store(int32(len(p.suspects)))
		p.metrics.aside.Dec()
	}
}

// Use is where sources are defined, to find out which are still there.
type Use struct{ sources map[sourceKey]struct{} }

// Add notes the sources of a definition of that kind; see Definer.
func (u *Use) Add(kind string, sources ...string) {
	if u.sources == nil {
		u.sources = map[sourceKey]struct{}{}
	}
	for _, s := range sources {
		u.sources[keyOf(kindNamed(kind), s)] = struct{}{}
	}
}

// Has reports whether a source is defined, in any namespace.
func (u *Use) Has(s SetAside) bool {
	_, ok := u.sources[s.key]
	return ok
}

func kindNamed(name string) byte {
	switch name {
	case "filter":
		return kindFilter
	case "mutator":
		return kindMutator
	}
	return kindEntity
}

// job is what is asked about sources of a definition.
type job struct {
	by       Definer
	def      *definition
	text     func(i int) string // a source
	question func(only []int) *asked
	quick    bool          // it was answered quickly before
	wait     time.Duration // for a free worker
}

// lane is where sources are asked: suspects apart from all others.
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

// run asks about sources. If the worker dies they are asked once more, each on its own: that finds the one to blame, and the
// others get their answers. got takes the answers as they come, and says whether to go on.
func (p *Pool) run(ctx context.Context, j *job, only []int, got func(only []int, body []byte, err error) bool) {
	body, err := p.ask(ctx, p.lane(j, only, j.quick), j.question(only), j.wait)
	var died *diedError
	if !errors.As(err, &died) {
		got(only, body, err)
		return
	}
	if died.blame && len(only) == 1 {
		p.blame(j.by, j.text(only[0]), j.def.keys[only[0]], died.why)
	}
	for n := range only {
		one := only[n : n+1]
		if _, aside := p.suspicion(j.by.Namespace, j.def.keys[one[0]]); aside {
			err = errAside
		} else {
			p.metrics.retries.Inc()
			body, err = p.ask(ctx, p.lane(j, one, false), j.question(one), j.wait)
		}
		if errors.As(err, &died) && died.blame {
			p.blame(j.by, j.text(one[0]), j.def.keys[one[0]], died.why)
		}
		if !got(one, body, err) {
			return
		}
	}
}
