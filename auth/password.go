package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"sync"
)

// maxRight and maxWrong bound the kept verdicts. They are separate so that guesses cannot push out the agents'
// passwords.
const (
	maxRight = 65_536
	maxWrong = 8_192
)

// maxUserName bounds a user name, in bytes. A longer name is wrong and is not kept.
const maxUserName = 256

type digest [sha256.Size]byte

// keyedDigest identifies a question so that its answer can be kept without the password.
func keyedDigest(key []byte, parts ...string) (d digest) {
	mac := hmac.New(sha256.New, key)
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		mac.Write(n[:])
		mac.Write([]byte(p))
	}
	mac.Sum(d[:0])
	return d
}

// randomKey returns a key for the life of the process.
func randomKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

// verifier compares passwords with slow hashes, each once.
type verifier struct {
	key     []byte
	turns   *turns
	compare func(hash, password []byte) error
	counted func()

	mu      sync.Mutex // guards the fields below
	right   map[digest]struct{}
	wrong   map[digest]struct{}
	running map[digest]chan struct{} // closed when the comparison is done
}

func newVerifier(counted func()) *verifier {
	return &verifier{
		key:     randomKey(),
		turns:   newTurns(max(1, runtime.GOMAXPROCS(0)/2)),
		compare: compareHash,
		counted: counted,
		right:   map[digest]struct{}{},
		wrong:   map[digest]struct{}{},
		running: map[digest]chan struct{}{},
	}
}

// question is a request for one comparison.
type question struct {
	user, hash, password string
	// address shares the queue with others; a trusted address goes first: see turns.
	address string
	trusted bool
	// remembered, if set, reports whether the password was right before the process began.
	remembered func() bool
	// admit may refuse a comparison. judged ends it: right is nil if nothing was compared.
	admit  func() error
	judged func(right *bool)
}

// verify reports whether the hash is the password's. Of several callers with the same question one computes the answer
// and the others wait for it.
func (v *verifier) verify(ctx context.Context, q question) (bool, error) {
	d := keyedDigest(v.key, q.user, q.hash, q.password)
	for {
		v.mu.Lock()
		if _, ok := v.right[d]; ok {
			v.mu.Unlock()
			return true, nil
		}
		if _, ok := v.wrong[d]; ok {
			v.mu.Unlock()
			return false, nil
		}
		done, running := v.running[d]
		if !running {
			done = make(chan struct{})
			v.running[d] = done
			v.mu.Unlock()
			return v.run(ctx, d, done, q)
		}
		v.mu.Unlock()
		select {
		case <-done: // look again: the caller that computed may have given up
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// run finds the answer to q and keeps it.
func (v *verifier) run(ctx context.Context, d digest, done chan struct{}, q question) (right bool, err error) {
	known := false
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.running, d)
		close(done)
		switch {
		case !known:
		case right:
			remember(v.right, d, maxRight)
		default:
			remember(v.wrong, d, maxWrong)
		}
	}()
	if q.remembered != nil && q.remembered() {
		known = true
		return true, nil
	}
	if q.admit != nil {
		if err := q.admit(); err != nil {
			return false, err
		}
	}
	var verdict *bool
	if q.judged != nil {
		defer func() { q.judged(verdict) }()
	}
	release, err := v.turns.take(ctx, q.address, q.trusted)
	if err != nil {
		return false, err
	}
	defer release()
	v.counted()
	// A malformed hash matches no password.
	right = v.compare([]byte(q.hash), []byte(q.password)) == nil
	known, verdict = true, &right
	return right, nil
}

// remember adds d to a map; in a full map it replaces any other entry.
func remember(m map[digest]struct{}, d digest, limit int) {
	for old := range m {
		if len(m) < limit {
			break
		}
		delete(m, old)
	}
	m[d] = struct{}{}
}
