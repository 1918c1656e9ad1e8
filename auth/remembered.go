package auth

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

// Two things must survive a restart: which passwords of agents were right, or a fleet with a user per host would have
// to be compared again; and from which addresses users have signed in, or they would lose their places in front of
// guessers. Both are kept as digests under a key of the cluster. Passwords of people are not kept: a digest is fast to
// compute, and would help a thief of the state directory to guess what the slow hash protects.
const (
	rememberedPassword = "password" // user, hash, password
	rememberedPlace    = "place"    // user, address
	rememberedEntry    = "entry"    // directory, entry in it, address

	// maxRemembered bounds the digests. Above it the older half is dropped.
	maxRemembered = 131_072
	// rememberAgain is the wait before the next attempt when the cluster's key or the file cannot be used.
	rememberAgain = time.Minute
)

// The file begins with a header: the magic text, a check of the key, and their checksum. Each digest is followed by its
// checksum.
const (
	rememberedMagic  = "lapwing remembered 2\n"
	rememberedHeader = len(rememberedMagic) + sha256.Size + crc32.Size
	rememberedRecord = len(digest{}) + crc32.Size
	// maxRememberedFile bounds the file. It is rewritten long before.
	maxRememberedFile = rememberedHeader + 2*maxRemembered*rememberedRecord
)

// remembered keeps digests in memory and, if there is a path, in a file. The file grows until it is rewritten. It is
// not synced: a lost digest costs one comparison.
type remembered struct {
	key  []byte
	path string

	mu    sync.Mutex // guards the fields below
	have  map[digest]struct{}
	order []digest // in order of arrival
}

// openRemembered reads the file. Contents with another key, or invalid ones, are no error: they are replaced.
func openRemembered(key []byte, path string) (*remembered, error) {
	r := &remembered{key: key, path: path, have: map[digest]struct{}{}}
	if path == "" {
		return r, nil
	}
	data, err := plainfile.Read(path, int64(maxRememberedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read remembered sign-ins: %w", err)
	}
	whole := false
	if bytes.HasPrefix(data, r.header()) {
		var sound [][]byte
		sound, whole = soundEntries(data)
		for _, d := range sound {
			r.keep(digest(d))
		}
	}
	if !whole || len(r.order) > maxRemembered {
		return r, r.rewrite()
	}
	return r, nil
}

// header begins the file. Digests under another key would never match.
func (r *remembered) header() []byte {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte(rememberedMagic))
	return sealed(mac.Sum([]byte(rememberedMagic)))
}

// sealed appends the checksum of b to b.
func sealed(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b)) }

// isSealed reports whether the last bytes are the checksum of the bytes before.
func isSealed(b []byte) bool {
	n := len(b) - crc32.Size
	return n >= 0 && crc32.ChecksumIEEE(b[:n]) == binary.LittleEndian.Uint32(b[n:])
}

// soundEntries returns the valid digests after the header. whole is false if there is anything else.
func soundEntries(data []byte) (sound [][]byte, whole bool) {
	whole = true
	for d := range slices.Chunk(data[rememberedHeader:], rememberedRecord) {
		if len(d) < rememberedRecord || !isSealed(d) { // the last one may be cut off
			whole = false
			continue
		}
		sound = append(sound, d[:len(digest{})])
	}
	return sound, whole
}

// CheckRemembered returns what is wrong with a file of remembered sign-ins, or "". A truncated end is not wrong: the
// file is not synced. The check does not need the cluster's key.
func CheckRemembered(path string) (string, error) {
	data, err := plainfile.Read(path, int64(maxRememberedFile))
	if err != nil {
		return "", err
	}
	if len(data) < rememberedHeader || !isSealed(data[:rememberedHeader]) || !bytes.HasPrefix(data, []byte(rememberedMagic)) {
		return "the beginning of the file fails its checksum", nil
	}
	sound, _ := soundEntries(data)
	if all := (len(data) - rememberedHeader) / rememberedRecord; len(sound) < all {
		return fmt.Sprintf("%d of %d entries fail their checksum", all-len(sound), all), nil
	}
	return "", nil
}

func (r *remembered) keep(d digest) bool {
	if _, ok := r.have[d]; ok {
		return false
	}
	r.have[d] = struct{}{}
	r.order = append(r.order, d)
	return true
}

// has reports whether the parts were added. A nil remembered is empty.
func (r *remembered) has(parts ...string) bool {
	if r == nil {
		return false
	}
	d := keyedDigest(r.key, parts...)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.have[d]
	return ok
}

// add keeps the digest of the parts.
func (r *remembered) add(parts ...string) error {
	if r == nil {
		return nil
	}
	d := keyedDigest(r.key, parts...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.keep(d) {
		return nil
	}
	if len(r.order) > maxRemembered {
		return r.rewrite()
	}
	if r.path == "" {
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("remember sign-in: %w", err)
	}
	_, err = f.Write(sealed(d[:]))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("remember sign-in: %w", err)
	}
	return nil
}

// rewrite drops the older half of too many digests and rewrites the file. The caller holds mu.
func (r *remembered) rewrite() error {
	if len(r.order) > maxRemembered {
		for _, d := range r.order[:len(r.order)-maxRemembered/2] {
			delete(r.have, d)
		}
		r.order = slices.Clone(r.order[len(r.order)-maxRemembered/2:])
	}
	if r.path == "" {
		return nil
	}
	data := r.header()
	for _, d := range r.order {
		data = append(data, sealed(d[:])...)
	}
	fresh := r.path + ".new"
	if err := os.WriteFile(fresh, data, 0o600); err != nil {
		return fmt.Errorf("write remembered sign-ins: %w", err)
	}
	if err := os.Rename(fresh, r.path); err != nil {
		return fmt.Errorf("write remembered sign-ins: %w", err)
	}
	return nil
}

// memory returns the remembered sign-ins; nil while the cluster's key cannot be read. It is opened at the first use and
// not in New, because the key comes from the cluster's store.
func (a *Auth) memory(ctx context.Context) *remembered {
	if r := a.remembered.Load(); r != nil {
		return r
	}
	a.remembering.Lock()
	defer a.remembering.Unlock()
	if r := a.remembered.Load(); r != nil {
		return r
	}
	now := a.opts.Now()
	if now.Before(a.rememberNext) {
		return nil
	}
	r, err := a.openMemory(ctx)
	if err != nil {
		a.rememberNext = now.Add(rememberAgain)
		a.rare.Warn("sign-ins cannot be remembered: every password is compared anew after a restart", "", "file", a.opts.Remember, "err", err)
	}
	if r != nil {
		a.remembered.Store(r)
	}
	return r
}

func (a *Auth) openMemory(ctx context.Context) (*remembered, error) {
	if a.opts.Remember == "" {
		return openRemembered(randomKey(), "")
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	key, err := a.opts.Config.Secret(ctx, "remembered", 32)
	if err != nil {
		return nil, fmt.Errorf("get key of remembered sign-ins: %w", err)
	}
	return openRemembered(key, a.opts.Remember)
}

// rememberSignIn adds the parts to the remembered sign-ins.
func (a *Auth) rememberSignIn(r *remembered, parts ...string) {
	if err := r.add(parts...); err != nil {
		a.rare.Warn("a sign-in cannot be remembered: its password is compared anew after a restart", "", "file", a.opts.Remember, "err", err)
	}
}
