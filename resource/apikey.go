package resource

import "errors"

// APIKey lets programs act as a user. What they send is not kept: Hash is its SHA-256, and the name follows from that.
type APIKey struct {
	Metadata  ObjectMeta `json:"metadata"`
	Username  string     `json:"username"`
	Hash      string     `json:"hash,omitempty"` // hex; never shown
	CreatedAt int64      `json:"created_at"`     // Unix seconds
}

// Validate returns the reason why k is not acceptable, if it is not.
func (k *APIKey) Validate() error {
	if k.Metadata.Namespace != "" {
		return errors.New("api key cannot have a namespace")
	}
	if k.Username == "" {
		return errors.New("api key must have a username")
	}
	return nil
}

// Session is what is kept of a sign-in from its first refresh on, or from its logout. It is no resource of the API.
type Session struct {
	ID      string `json:"id"`
	User    string `json:"user"`
	Current string `json:"current,omitempty"` // id of the refresh token that can be traded next; "" when the session has ended
	Until   int64  `json:"until"`             // Unix seconds; none of its tokens is good any more then
}
