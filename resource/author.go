package resource

// Author is the user who wrote a definition. The server sets it on every write. Such a definition reads only events
// that its author may read. Definitions of older releases have none.
type Author struct {
	User string `json:"user"`
	// Provider and ProviderType name the directory or OpenID Connect provider that vouches for the user. They are empty
	// for lapwing's own users.
	Provider     string `json:"provider,omitempty"`
	ProviderType string `json:"provider_type,omitempty"`
}

// Standing is a provider's last answer about one of its users. Its groups apply to the user's definitions while the
// user is not signed in. The API does not serve it.
type Standing struct {
	ID           string   `json:"id"`
	User         string   `json:"user"`
	Provider     string   `json:"provider"`
	ProviderType string   `json:"provider_type"`
	Groups       []string `json:"groups,omitempty"`
	Seen         int64    `json:"seen"` // Unix seconds: when the provider was asked
}
