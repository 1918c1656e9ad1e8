package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// The algorithms for new passwords. Hashes of both are always accepted.
const (
	Bcrypt   = "bcrypt"
	Argon2id = "argon2id"
)

var errMismatch = errors.New("password is not the one that was hashed")

// The cost of argon2id: the second choice of RFC 9106, with less memory. The cost of a stored hash is bounded too:
// users can be imported with any hash.
const (
	argonTime, argonMemory, argonThreads = 3, 32 << 10, 2 // passes, KiB, lanes
	maxArgonTime, maxArgonMemory         = 16, 256 << 10
	argonSalt, argonKey                  = 16, 32
)

// compareHash returns nil if the hash is the password's.
func compareHash(hash, password []byte) error {
	if strings.HasPrefix(string(hash), "$argon2id$") {
		return compareArgon(string(hash), password)
	}
	return bcrypt.CompareHashAndPassword(hash, password)
}

// compareArgon reads the usual form: $argon2id$v=19$m=65536,t=3,p=4$salt$key.
func compareArgon(hash string, password []byte) error {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 {
		return fmt.Errorf("argon2id hash has %d parts, want 6", len(parts))
	}
	var version int
	var memory, passes uint32
	var lanes uint8
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return fmt.Errorf("argon2id hash is of version %q", parts[2])
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &memory, &passes, &lanes); err != nil {
		return fmt.Errorf("argon2id hash has cost %q: %w", parts[3], err)
	}
	if memory > maxArgonMemory || passes < 1 || passes > maxArgonTime || lanes < 1 {
		return fmt.Errorf("argon2id hash has cost %q, which is out of bounds", parts[3])
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return fmt.Errorf("argon2id hash: salt: %w", err)
	}
	key, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || len(key) < 16 || len(key) > 128 {
		return errors.New("argon2id hash has no key")
	}
	if subtle.ConstantTimeCompare(key, argon2.IDKey(password, salt, passes, memory, lanes, uint32(len(key)))) != 1 {
		return errMismatch
	}
	return nil
}

// HashPassword returns the hash to store.
func (a *Auth) HashPassword(ctx context.Context, password string) (string, error) {
	release, err := a.passwords.turns.take(ctx, "", true)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	defer release()
	return a.hashPassword(password)
}

func (a *Auth) hashPassword(password string) (string, error) {
	if a.opts.Hash == Argon2id {
		salt := make([]byte, argonSalt)
		_, _ = rand.Read(salt) // never fails
		key := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, argonKey)
		b64 := base64.RawStdEncoding.EncodeToString
		return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonThreads, b64(salt), b64(key)), nil
	}
	// bcrypt ignores everything after the 72nd byte.
	hash, err := bcrypt.GenerateFromPassword([]byte(password[:min(len(password), 72)]), a.opts.HashCost)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return string(hash), nil
}

// Matches reports whether the hash is the password's.
func (a *Auth) Matches(ctx context.Context, hash, password string) (bool, error) {
	right, err := a.passwords.verify(ctx, question{hash: hash, password: password, trusted: true})
	if err != nil {
		return false, fmt.Errorf("compare password with hash: %w", err)
	}
	return right, nil
}
