package agent

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// moveEvery is the least time between two moves at the request of backends.
const moveEvery = time.Minute

// addresses are the backends that a transport may connect to: the configured ones, and the members of a cluster that a
// backend has named. The configured ones are always valid, and are tried in turn. Members are tried first, because they
// spread the agents; but they may be out of the agent's reach, behind a load balancer for example. A member that could
// not be reached is doubtful, and comes after the configured backends from then on.
//
// A round tries each address once.
type addresses struct {
	configured []string
	follows    bool // members are used
	secure     bool // members must use TLS, as the configured backends do

	mu       sync.Mutex // guards the fields below
	turn     int        // index of the configured backend to try next
	named    []string   // the members
	doubtful map[string]bool
	self     string    // the member that has named them
	moved    time.Time // when the agent last moved, or tried to, at the request of a backend

	tried map[string]bool // addresses of this round
	avoid []string        // addresses that come last in this round
}

// newAddresses checks the configured backends.
func newAddresses(configured []string, inOrder bool) (*addresses, error) {
	a := &addresses{follows: !inOrder, doubtful: map[string]bool{}, tried: map[string]bool{}}
	for _, raw := range configured {
		u, err := backendURL(raw)
		if err != nil {
			return nil, err
		}
		a.configured = append(a.configured, u)
		a.secure = a.secure || strings.HasPrefix(u, "wss:")
	}
	if !inOrder {
		rand.Shuffle(len(a.configured), func(i, j int) {
			a.configured[i], a.configured[j] = a.configured[j], a.configured[i]
		})
	}
	return a, nil
}

func backendURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("parse backend url: %w", err)
	}
	if u.Scheme != "ws" && u.Scheme != "wss" {
		return "", fmt.Errorf("parse backend url %q: scheme must be ws or wss", raw)
	}
	if u.Hostname() == "" {
		return "", fmt.Errorf("parse backend url %q: no host", raw)
	}
	if u.Port() == "" {
		u.Host = strings.TrimSuffix(u.Host, ":") + ":8081"
	}
	return u.String(), nil
}

// memberURL checks the URL of a member. A backend may name hosts and ports, and nothing else.
func (a *addresses) memberURL(raw string) (string, error) {
	text, err := backendURL(raw)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("parse backend url: %w", err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case err != nil || port == 0:
		return "", fmt.Errorf("parse backend url %q: no such port", raw)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return "", fmt.Errorf("parse backend url %q: more than a host and a port", raw)
	case a.secure && u.Scheme != "wss":
		return "", fmt.Errorf("backend url %q has no TLS, and the configured ones have", raw)
	}
	return u.Scheme + "://" + u.Host, nil
}

// learn takes the members that a backend has named, and reports whether they are others than before. It returns the one
// that the agent is asked to move to; next is empty if there is none. err is why the agent cannot use one of them.
func (a *addresses) learn(m wire.Members) (next string, changed bool, err error) {
	if !a.follows {
		return "", false, nil
	}
	var named []string
	var self string
	for _, raw := range m.URLs {
		u, bad := a.memberURL(raw)
		if bad != nil {
			err = bad
			continue
		}
		if !slices.Contains(named, u) && len(named) < wire.MaxMembers {
			named = append(named, u)
		}
		if raw == m.Self {
			self = u
		}
		if raw == m.Next {
			next = u
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	changed = !slices.Equal(a.named, named)
	a.named, a.self = named, self
	for u := range a.doubtful {
		if !slices.Contains(named, u) {
			delete(a.doubtful, u) // if it comes back, it may be in reach
		}
	}
	if next == self {
		next = ""
	}
	return next, changed, err
}

// recall takes the members that were named to an earlier process. They count as doubtful.
func (a *addresses) recall(members []string) {
	_, _, _ = a.learn(wire.Members{URLs: members})
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.named {
		a.doubtful[u] = true
	}
}

// known returns the members that a backend has named.
func (a *addresses) known() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.named
}

// several reports whether there is more than one backend.
func (a *addresses) several() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.configured) > 1 || len(a.named) > 1
}

// mayMove reports whether the agent may move now at the request of a backend, and notes that it does.
func (a *addresses) mayMove(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.moved.IsZero() && now.Sub(a.moved) < moveEvery {
		return false
	}
	a.moved = now
	return true
}

// address is one that may be tried.
type address struct {
	url    string
	member bool // a backend has named it
	at     int  // its index if it is configured, else -1
}

// pick returns the address to try now. If the round is over, it begins another.
func (a *addresses) pick() address {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, ok := a.choose()
	if !ok {
		clear(a.tried)
		a.avoid = nil
		u, _ = a.choose()
	}
	a.tried[u], a.self = true, ""
	at := slices.Index(a.configured, u)
	if at >= 0 {
		a.turn = at + 1
	}
	return address{u, slices.Contains(a.named, u), at}
}

// choose returns the best address that was not tried in this round. The caller holds mu.
func (a *addresses) choose() (string, bool) {
	var classes [5][]string // the best first
	add := func(class int, u string) {
		if !a.tried[u] {
			classes[class] = append(classes[class], u)
		}
	}
	for i := range a.configured {
		u := a.configured[(a.turn+i)%len(a.configured)]
		if slices.Contains(a.avoid, u) {
			add(2, u)
		} else {
			add(1, u)
		}
	}
	failed := slices.ContainsFunc(a.named, func(u string) bool { return a.tried[u] && a.doubtful[u] })
	for _, i := range rand.Perm(len(a.named)) {
		switch u := a.named[i]; {
		case slices.Contains(a.avoid, u):
			add(4, u)
		case failed || a.doubtful[u]:
			add(3, u)
		default:
			add(0, u)
		}
	}
	all := slices.Concat(classes[:]...)
	if len(all) == 0 {
		return "", false
	}
	return all[0], true
}

// over reports whether every address was tried in this round.
func (a *addresses) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, more := a.choose()
	return !more
}

// left begins another round after a connection that has worked. The backend of that connection comes last, and not in
// this round if it has sent the agent away. A load balancer does, because it has other backends.
func (a *addresses) left(from string, away, inOrder bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.tried)
	a.avoid = nil
	switch backend := cmp.Or(a.self, from); {
	case away:
		a.tried[backend] = true
		a.avoid = []string{from}
	case !inOrder:
		a.avoid = []string{from, backend}
	}
	a.self = ""
	if inOrder {
		a.turn = 0
	}
}

// reached notes whether a connection to a member could be made.
func (a *addresses) reached(u string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ok {
		delete(a.doubtful, u)
	} else if slices.Contains(a.named, u) {
		a.doubtful[u] = true
	}
}
