package resource

// Handler is what is done with an incident: a command, a socket, a webhook, or a set of other handlers.
type Handler struct {
	Metadata      ObjectMeta     `json:"metadata"`
	Type          string         `json:"type"` // pipe, tcp, udp, set or webhook
	Mutator       string         `json:"mutator,omitempty"`
	Command       string         `json:"command,omitempty"`
	Timeout       uint32         `json:"timeout"` // seconds
	Socket        *HandlerSocket `json:"socket,omitempty"`
	Handlers      []string       `json:"handlers"`
	Filters       []string       `json:"filters"`
	EnvVars       []string       `json:"env_vars"`
	RuntimeAssets []string       `json:"runtime_assets"`
	Secrets       []Secret       `json:"secrets"`
	// Webhook is lapwing's own: where a handler of type webhook posts the event's JSON.
	Webhook *HandlerWebhook `json:"webhook,omitempty"`
}

// HandlerSocket is where a tcp or udp handler writes.
type HandlerSocket struct {
	Host string `json:"host"`
	Port uint32 `json:"port"`
}

// HandlerWebhook is an HTTP endpoint that takes an event's JSON.
type HandlerWebhook struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty"` // default POST
	Headers map[string]string `json:"headers,omitempty"`
}

// Namespace divides everything else.
type Namespace struct {
	Name string `json:"name"`
}

// User may sign in, or be an agent. PasswordHash is bcrypt.
type User struct {
	Username     string   `json:"username"`
	Password     string   `json:"password,omitempty"`
	PasswordHash string   `json:"password_hash,omitempty"`
	Groups       []string `json:"groups,omitempty"`
	Disabled     bool     `json:"disabled"`
	// SignedOut is when the user's sessions were all ended, in Unix seconds: because somebody else set the password. It is
	// not shown.
	SignedOut int64 `json:"signed_out,omitempty"`
}

// Rule allows verbs on resources, optionally only those with the given names. "*" stands for all.
type Rule struct {
	Verbs         []string `json:"verbs"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resource_names"`
	// LabelSelector, which is lapwing's own, limits it to objects whose labels fit.
	LabelSelector string `json:"label_selector,omitempty"`
}

// ClusterRole is rules that bindings can grant everywhere.
type ClusterRole struct {
	Metadata ObjectMeta `json:"metadata"`
	Rules    []Rule     `json:"rules"`
}

// Role is rules that bindings of its namespace can grant there.
type Role struct {
	Metadata ObjectMeta `json:"metadata"`
	Rules    []Rule     `json:"rules"`
}

// RoleRef names a Role or ClusterRole.
type RoleRef struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// Subject is a User or Group that a binding grants to.
type Subject struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// ClusterRoleBinding grants a ClusterRole everywhere.
type ClusterRoleBinding struct {
	Metadata ObjectMeta `json:"metadata"`
	RoleRef  RoleRef    `json:"role_ref"`
	Subjects []Subject  `json:"subjects"`
}

// RoleBinding grants a Role or ClusterRole in its namespace.
type RoleBinding struct {
	Metadata ObjectMeta `json:"metadata"`
	RoleRef  RoleRef    `json:"role_ref"`
	Subjects []Subject  `json:"subjects"`
}
