package resource

import "errors"

// APIKey lets a program act as a user. The key itself is not stored: Hash is its SHA-256, and the name is derived from
// the hash.
type APIKey struct {
	Metadata  ObjectMeta `json:"metadata"`
	Username  string     `json:"username"`
	Hash      string     `json:"hash,omitempty"` // hex; never shown
	CreatedAt int64      `json:"created_at"`     // Unix seconds
}

// Validate returns the reason why k is not acceptable, or nil.
func (k *APIKey) Validate() error {
	if k.Metadata.Namespace != "" {
		return errors.New("api key cannot have a namespace")
	}
	if k.Username == "" {
		return errors.New("api key must have a username")
	}
	return nil
}

// Session is the stored record of a sign-in, from its first refresh or its logout on. The API does not serve it.
type Session struct {
	ID      string `json:"id"`
	User    string `json:"user"`
	Current string `json:"current,omitempty"` // id of the next refresh token; "" when the sign-in has ended
	Until   int64  `json:"until"`             // Unix seconds, when the last of its tokens ends
}
