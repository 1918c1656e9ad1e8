package resource

// Referrer is a definition that names another one.
type Referrer struct {
	// Type is the referrer's type in files, as CheckConfig, and Resource its name in roles' rules, as checks.
	Type      string `json:"type"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Names is the resource of what it names, as handlers, What the word for it, as handler, and Named its name.
	Names string `json:"names"`
	What  string `json:"what"`
	Named string `json:"named"`
}

// Referrers are definitions that name others.
type Referrers struct {
	Referrers []Referrer `json:"referrers"`
	// More says how many further ones name something, by the resource and the name of that, as handlers/slack.
	More map[string]int `json:"more,omitempty"`
}
