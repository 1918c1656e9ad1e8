package filter

import "time"

// Definer is the definition that contains a source.
type Definer struct {
	// Kind is "filter", "mutator", "check" or "asset".
	Kind, Namespace, Name string
}

// SetAside is a source that does not run any more, because workers died of it.
type SetAside struct {
	// Definer is where that was found. The same source elsewhere in its namespace does not run either.
	Definer
	Source string
	Since  time.Time
	Reason string    // of the last death
	key    sourceKey // with the files of assets that run before it
}

// suspectKey identifies a suspect. Authors and events of one namespace have no influence on the sources of another.
type suspectKey struct {
	namespace string
	source    sourceKey
}

// suspect is a source that was blamed within deathMemory, or is set aside.
type suspect struct {
	deaths []time.Time
	paused time.Time // until when it is not asked
	aside  SetAside  // Since is zero if it is not set aside
}

// losses are the workers that died of sources of a namespace.
type losses struct {
	since   time.Time // when the present minute began
	workers int       // since then
	apart   time.Time // until when the namespace avoids the quick lanes
}

// blame notes that a worker died of a source. It pauses the source, and sets it aside after too many deaths.
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
	s.paused = now.Add(min(firstPause<<(4*min(len(s.deaths)-1, maxDeaths)), p.opts.MaxPause))
	p.lose(by.Namespace, now)
	if len(s.deaths) < maxDeaths || !s.aside.Since.IsZero() {
		return
	}
	s.aside.Since, s.aside.Reason = now, why
	p.metrics.aside.Inc()
	p.log.Error("expression is set aside: three worker processes died of it; change its definition",
		"kind", by.Kind, "namespace", by.Namespace, "name", by.Name, "source", cut(source), "err", why)
}

// old reports whether nothing known of a suspect counts any more.
func (s *suspect) old(now time.Time) bool {
	return s.aside.Since.IsZero() && now.Sub(s.deaths[len(s.deaths)-1]) > deathMemory
}

// forgetOld forgets the suspects whose last death is older than deathMemory, and losses that do not count any more.
// Suspects that are set aside stay.
func (p *Pool) forgetOld(now time.Time) {
	for key, s := range p.suspects {
		if s.old(now) {
			delete(p.suspects, key)
		}
	}
	for namespace, l := range p.losses {
		if now.Sub(l.since) > time.Minute && now.After(l.apart) {
			delete(p.losses, namespace)
		}
	}
	p.swept = now
	p.suspected.Store(int32(len(p.suspects)))
	p.losing.Store(int32(len(p.losses)))
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

// suspicion reports whether a source of a namespace is a suspect, and why it must not run now, if so.
func (p *Pool) suspicion(namespace string, key sourceKey) (died bool, why error) {
	if p == nil || p.suspected.Load() == 0 {
		return false, nil
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.swept) > sweepEvery {
		p.forgetOld(now)
	}
	s := p.suspects[suspectKey{namespace, key}]
	switch {
	case s == nil || s.old(now):
		return false, nil
	case !s.aside.Since.IsZero():
		return true, errAside
	case now.Before(s.paused):
		return true, errPaused
	}
	return true, nil
}

// lose counts a worker that died of a source of a namespace. The caller holds mu.
func (p *Pool) lose(namespace string, now time.Time) {
	l := p.losses[namespace]
	if l == nil {
		l = &losses{}
		p.losses[namespace] = l
		p.losing.Store(int32(len(p.losses)))
	}
	if now.Sub(l.since) > time.Minute {
		l.since, l.workers = now, 0
	}
	if l.workers++; l.workers >= maxLosses {
		l.apart = now.Add(apartFor)
	}
}

// keptApart reports whether a namespace must avoid the quick lanes: too many workers died of its sources. A change of
// those sources does not end that.
func (p *Pool) keptApart(namespace string) bool {
	if p.losing.Load() == 0 {
		return false
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.swept) > sweepEvery {
		p.forgetOld(now)
	}
	l := p.losses[namespace]
	return l != nil && now.Before(l.apart)
}

// SetAside lists the sources that do not run any more.
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

// Release forgets that a source was set aside. The backend calls it when no definition in its namespace has the source
// any more.
func (p *Pool) Release(s SetAside) {
	p.forget(s.Namespace, s.key)
}

// forget forgets the deaths of sources of a namespace.
func (p *Pool) forget(namespace string, keys ...sourceKey) {
	if p == nil || p.suspected.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, source := range keys {
		key := suspectKey{namespace, source}
		if known := p.suspects[key]; known != nil {
			delete(p.suspects, key)
			if !known.aside.Since.IsZero() {
				p.metrics.aside.Dec()
			}
		}
	}
	p.suspected.Store(int32(len(p.suspects)))
}

// Use collects the defined sources. With it the backend finds set-aside sources that no definition has any more.
type Use struct{ sources map[suspectKey]struct{} }

// Add adds the sources of a definition of that kind in a namespace; see Definer.
func (u *Use) Add(kind, namespace string, sources ...string) {
	if u.sources == nil {
		u.sources = map[suspectKey]struct{}{}
	}
	for _, s := range sources {
		u.sources[suspectKey{namespace, keyOf(kindNamed(kind), nil, s)}] = struct{}{}
	}
}

// Has reports whether a source is defined in its namespace.
func (u *Use) Has(s SetAside) bool {
	_, ok := u.sources[suspectKey{s.Namespace, keyOf(kindNamed(s.Kind), nil, s.Source)}]
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
