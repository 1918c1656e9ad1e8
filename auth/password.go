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

const (
	// maxRight and maxWrong bound the verdicts that are kept. They are separate so that guesses cannot push out the
	// agents' passwords.
	maxRight = 65_536
	maxWrong = 8_192
	// maxQueue bounds the comparisons that wait for a CPU: at two CPUs and 50 ms each, the last one waits some 6 s.
	maxQueue = 128
)

// nobodysHash is compared when there is no such user, so that the time of the answer does not tell. It is well-formed and
// the hash of no known password.
const nobodysHash = "$2a$10$lapwinglapwinglapwinguxSoZB3CPOtgKTM3YNrN0AEwPMUpyOnG"

type digest [sha256.Size]byte

// verifier compares passwords with slow hashes, each once.
type verifier struct {
	key     [32]byte
	slots   chan struct{} // one for each comparison that may run at a time
	compare func(hash, password []byte) error
	counted func()

	mu      sync.Mutex // guards the fields below
	right   map[digest]struct{}
	wrong   map[digest]struct{}
	running map[digest]chan struct{} // closed when the comparison is done
}

func newVerifier(counted func()) *verifier {
	v := &verifier{
		slots:   make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		compare: compareHash,
		counted: counted,
		right:   map[digest]struct{}{},
		wrong:   map[digest]struct{}{},
		running: map[digest]chan struct{}{},
	}
	_, _ = rand.Read(v.key[:]) // never fails
	return v
}

// digest names a question so that its answer can be kept without the password.
func (v *verifier) digest(parts ...string) (d digest) {
	mac := hmac.New(sha256.New, v.key[:])
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		mac.Write(n[:])
		mac.Write([]byte(p))
	}
	mac.Sum(d[:0])
	return d
}

// verify says whether the password is the one that was hashed. Of several callers with the same question one computes
// the answer and the others wait for it.
func (v *verifier) verify(ctx context.Context, user, hash, password string) (bool, error) {
	right, _, err := v.verifyIf(ctx, user, hash, password, func() error { return nil })
	return right, err
}

// verifyIf is verify with a word of admit's before an answer is computed, and tells whether this caller did so.
func (v *verifier) verifyIf(ctx context.Context, user, hash, password string, admit func() error) (right, computed bool, err error) {
	d := v.digest(user, hash, password)
	for {
		v.mu.Lock()
		if _, ok := v.right[d]; ok {
			v.mu.Unlock()
			return true, false, nil
		}
		if _, ok := v.wrong[d]; ok {
			v.mu.Unlock()
			return false, false, nil
		}
		done, running := v.running[d]
		if !running {
			if len(v.running) >= maxQueue+cap(v.slots) {
				v.mu.Unlock()
				return false, false, ErrBusy
			}
			if err := admit(); err != nil {
				v.mu.Unlock()
				return false, false, err
			}
			done = make(chan struct{})
			v.running[d] = done
			v.mu.Unlock()
			right, err := v.run(ctx, d, done, hash, password)
			return right, true, err
		}
		v.mu.Unlock()
		select {
		case <-done: // look again: whoever computed may have given up
		case <-ctx.Done():
			return false, false, ctx.Err()
		}
	}
}

func (v *verifier) run(ctx context.Context, d digest, done chan struct{}, hash, password string) (right bool, err error) {
	compared := false
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.running, d)
		close(done)
		switch {
		case !compared:
		case right:
			remember(v.right, d, maxRight)
		default:
			remember(v.wrong, d, maxWrong)
		}
	}()
	release, err := v.turn(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	v.counted()
	// A hash that is none matches nothing, which is what its owner gets for storing it.
	right = v.compare([]byte(hash), []byte(password)) == nil
	compared = true
	return right, nil
}

// turn waits for a CPU to compute a slow hash on.
func (v *verifier) turn(ctx context.Context) (release func(), err error) {
	select {
	case v.slots <- struct{}{}:
		return func() { <-v.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// remember adds d to a full map in the place of any other.
func remember(m map[digest]struct{}, d digest, limit int) {
	for old := range m {
		if len(m) < limit {
			break
		}
		delete(m, old)
	}
	m[d] = struct{}{}
}
