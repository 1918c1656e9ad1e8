package resource

// Handler is what is done with an incident: a command, a socket, a webhook, or a set of other handlers.
type Handler struct {
	Metadata      ObjectMeta     `json:"metadata"`
	Type          string         `json:"type"` // one of HandlerTypes
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
	// These are of the handlers of notify.go, each for the type of its name; Stream is for tcp_stream.
	Stream       *HandlerStream       `json:"stream,omitempty"`
	Slack        *HandlerSlack        `json:"slack,omitempty"`
	PagerDuty    *HandlerPagerDuty    `json:"pagerduty,omitempty"`
	Email        *HandlerEmail        `json:"email,omitempty"`
	Alertmanager *HandlerAlertmanager `json:"alertmanager,omitempty"`
	Graphite     *HandlerGraphite     `json:"graphite,omitempty"`
	Influx       *HandlerInflux       `json:"influx,omitempty"`

	// What follows is lapwing's own too: when and how often the handler is tried, and what goes out together.
	Retry       *HandlerRetry   `json:"retry,omitempty"`
	Concurrency uint32          `json:"concurrency,omitempty"` // deliveries at a time; default the backend's flag
	RateLimit   *HandlerRate    `json:"rate_limit,omitempty"`
	Group       *HandlerGroup   `json:"group,omitempty"`
	Resolve     *HandlerResolve `json:"resolve,omitempty"`
}

// HandlerRetry is when a delivery is tried again after a temporary failure. What is 0 has a default.
type HandlerRetry struct {
	MaxAttempts uint32 `json:"max_attempts,omitempty"` // tries in all
	Backoff     uint32 `json:"backoff,omitempty"`      // seconds before the second try; doubles before each further one
	MaxBackoff  uint32 `json:"max_backoff,omitempty"`  // seconds, the longest wait
	MaxAge      uint32 `json:"max_age,omitempty"`      // seconds from the first try, after which there is none
	// Statuses are the exit statuses of a command, or of an HTTP answer, that count as temporary.
	Statuses []int `json:"statuses,omitempty"`
}

// HandlerRate is how many deliveries a handler is given in a time.
type HandlerRate struct {
	PerSecond float64 `json:"per_second"`
	Burst     uint32  `json:"burst,omitempty"` // default 1, or a second's worth
}

// HandlerGroup collects deliveries that have the same values of some fields, and hands them over together.
type HandlerGroup struct {
	By       []string `json:"by"`                 // as in selectors: entity.labels.rack, check.name
	Wait     uint32   `json:"wait,omitempty"`     // seconds from the first member until the group goes out; default 10
	Interval uint32   `json:"interval,omitempty"` // seconds between two times that the same group goes out; default 0
	Fold     uint32   `json:"fold,omitempty"`     // members from which they go out as one event; default 2
}

// HandlerResolve is which resolutions a handler gets.
type HandlerResolve struct {
	OnlyAfterAlert bool   `json:"only_after_alert,omitempty"` // only if it got the incident before
	Delay          uint32 `json:"delay,omitempty"`            // seconds that a resolution waits; an incident within them drops it
}

// HandlerSocket is where a tcp or udp handler writes.
type HandlerSocket struct {
	Host string `json:"host"`
	Port uint32 `json:"port"`
}

// HandlerWebhook is an HTTP endpoint that takes an event's JSON.
type HandlerWebhook struct {
	URL         string            `json:"url,omitempty"`
	URLFile     string            `json:"url_file,omitempty"`
	Method      string            `json:"method,omitempty"` // default POST
	Headers     map[string]string `json:"headers,omitempty"`
	Body        string            `json:"body,omitempty"`         // template; default what the mutator made
	ContentType string            `json:"content_type,omitempty"` // default application/json
	TLS         *HandlerTLS       `json:"tls,omitempty"`
	HandlerAuth
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
