package resource

// Author is the user who said what a definition is. The server sets it when the definition is written. What such a definition
// reads of events is limited to what its author may read. Definitions from before authors were kept have none.
type Author struct {
	User string `json:"user"`
	// Provider and ProviderType name the directory or OpenID Connect provider that vouches for the user; empty for a user of lapwing's own.
	Provider     string `json:"provider,omitempty"`
	ProviderType string `json:"provider_type,omitempty"`
}

// Standing is what a provider last said of one of its users: the groups that count for definitions of that user while the user is
// not signed in. It is no resource of the API.
type Standing struct {
	ID           string   `json:"id"`
	User         string   `json:"user"`
	Provider     string   `json:"provider"`
	ProviderType string   `json:"provider_type"`
	Groups       []string `json:"groups,omitempty"`
	Seen         int64    `json:"seen"` // Unix seconds: when the provider was asked
}
