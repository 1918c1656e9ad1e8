package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// An API key is a random UUID with 122 bits, so storing a fast hash of it is safe. The key's public name is derived
// from that hash. It is a UUID of version 8, which is for custom use, so it cannot be mistaken for the key.
const publicVersion = 8

// NewAPIKey makes a key for a user. It returns the key, which is stored nowhere, and the object to store.
func (a *Auth) NewAPIKey(username string) (key string, stored *resource.APIKey) {
	id := uuid.New()
	return id.String(), a.storedKey(id, username)
}

// ImportAPIKey returns the object to store for a key that was made elsewhere.
func (a *Auth) ImportAPIKey(key, username string) (*resource.APIKey, error) {
	id, err := uuid.Parse(key)
	if err != nil {
		return nil, fmt.Errorf("an api key must be a UUID: %w", err)
	}
	if id.Version() == publicVersion {
		return nil, fmt.Errorf("%s is the public name of an api key and not the key", id)
	}
	return a.storedKey(id, username), nil
}

func (a *Auth) storedKey(id uuid.UUID, username string) *resource.APIKey {
	hash := sha256.Sum256(id[:])
	return &resource.APIKey{
		Metadata: resource.ObjectMeta{Name: publicName(hash)}, Username: username,
		Hash: hex.EncodeToString(hash[:]), CreatedAt: a.opts.Now().Unix(),
	}
}

func publicName(hash [sha256.Size]byte) string {
	id := uuid.UUID(hash[:16])
	id[6] = id[6]&0x0f | publicVersion<<4
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// APIKeyName returns the public name of a key, given the key or the name. Other texts are returned unchanged.
func APIKeyName(keyOrName string) string {
	id, err := uuid.Parse(keyOrName)
	if err != nil || id.Version() == publicVersion {
		return keyOrName
	}
	return publicName(sha256.Sum256(id[:]))
}

// APIKey returns the user of a key, with the user's present groups. It fails with ErrToken, for a disabled user's key
// too.
func (a *Auth) APIKey(key string) (*Identity, error) {
	id, err := uuid.Parse(key)
	if err != nil {
		return nil, ErrToken
	}
	hash := sha256.Sum256(id[:])
	stored, ok := config.Get(a.opts.Config.Snapshot(), config.APIKeys, "", publicName(hash))
	if !ok || subtle.ConstantTimeCompare([]byte(stored.Hash), []byte(hex.EncodeToString(hash[:]))) != 1 {
		return nil, ErrToken
	}
	u, ok := a.user(stored.Username)
	if !ok {
		return nil, ErrToken
	}
	return &Identity{User: u.Username, Groups: u.Groups, APIKey: stored.Metadata.Name}, nil
}
