package resource

// Handler says what to do with an incident: run a command, write to a socket, call a webhook, or use other handlers.
type Handler struct {
	Metadata ObjectMeta `json:"metadata"`
	// Type is pipe, tcp, udp or set, or lapwing's own: tcp_stream, webhook, slack, pagerduty, email, alertmanager, graphite,
	// influx or escalation.
	Type          string         `json:"type"`
	Mutator       string         `json:"mutator,omitempty"` // name of the mutator that changes the event first
	Command       string         `json:"command,omitempty"` // of type pipe: shell command that reads the event as JSON
	Timeout       uint32         `json:"timeout"`           // seconds until an attempt fails
	Socket        *HandlerSocket `json:"socket,omitempty"`  // of the types tcp and udp: where the event goes
	Handlers      []string       `json:"handlers"`          // of type set: names of the handlers that get the event
	Filters       []string       `json:"filters"`           // names of filters that must all let the event through
	EnvVars       []string       `json:"env_vars"`          // NAME=value, for the command
	RuntimeAssets []string       `json:"runtime_assets"`    // names of assets that the command needs
	Secrets       []Secret       `json:"secrets"`           // environment variables with secrets

	// The rest is lapwing's own.

	Webhook      *HandlerWebhook      `json:"webhook,omitempty"`      // of type webhook: where the event is posted as JSON
	Stream       *HandlerStream       `json:"stream,omitempty"`       // of type tcp_stream: the lasting connections to the socket
	Slack        *HandlerSlack        `json:"slack,omitempty"`        // of type slack
	PagerDuty    *HandlerPagerDuty    `json:"pagerduty,omitempty"`    // of type pagerduty
	Email        *HandlerEmail        `json:"email,omitempty"`        // of type email
	Alertmanager *HandlerAlertmanager `json:"alertmanager,omitempty"` // of type alertmanager
	Graphite     *HandlerGraphite     `json:"graphite,omitempty"`     // of type graphite
	Influx       *HandlerInflux       `json:"influx,omitempty"`       // of type influx
	Escalation   *HandlerEscalation   `json:"escalation,omitempty"`   // of type escalation: the contacts that each step notifies

	Retry       *HandlerRetry   `json:"retry,omitempty"`       // when a failed attempt is repeated
	Concurrency uint32          `json:"concurrency,omitempty"` // deliveries at a time; default the backend's flag
	RateLimit   *HandlerRate    `json:"rate_limit,omitempty"`  // how many deliveries it gets in a second
	Group       *HandlerGroup   `json:"group,omitempty"`       // which events go out together
	Resolve     *HandlerResolve `json:"resolve,omitempty"`     // which resolutions it gets
}

// HandlerRetry says when a delivery is tried again after a temporary failure. 0 means the default.
type HandlerRetry struct {
	MaxAttempts uint32 `json:"max_attempts,omitempty"` // tries in total
	Backoff     uint32 `json:"backoff,omitempty"`      // seconds before the second try; doubles before each later try
	MaxBackoff  uint32 `json:"max_backoff,omitempty"`  // seconds, the longest wait
	MaxAge      uint32 `json:"max_age,omitempty"`      // seconds after the first try; no try begins later
	// Statuses are the exit statuses of a command, or the statuses of an HTTP answer, that count as temporary failures.
	Statuses []int `json:"statuses,omitempty"`
}

// HandlerRate limits how many deliveries a handler gets in a period.
type HandlerRate struct {
	PerSecond float64 `json:"per_second"`
	Burst     uint32  `json:"burst,omitempty"` // default 1, or a second's worth
}

// HandlerGroup collects deliveries with the same values of some fields, and sends them together.
type HandlerGroup struct {
	By       []string `json:"by"`                 // fields as in selectors: entity.labels.rack, check.name
	Wait     uint32   `json:"wait,omitempty"`     // seconds from the first member until the group goes out; default 10
	Interval uint32   `json:"interval,omitempty"` // least seconds between two sendings of the same group; default 0
	Fold     uint32   `json:"fold,omitempty"`     // number of members from which they go out as one event; default 2
}

// HandlerResolve says which resolutions a handler gets.
type HandlerResolve struct {
	OnlyAfterAlert bool   `json:"only_after_alert,omitempty"` // only if the handler got the incident before
	Delay          uint32 `json:"delay,omitempty"`            // seconds to hold a resolution; a new incident drops it
}

// HandlerSocket is where a tcp or udp handler writes.
type HandlerSocket struct {
	Host string `json:"host"`
	Port uint32 `json:"port"`
}

// HandlerWebhook is an HTTP endpoint that gets an event's JSON.
type HandlerWebhook struct {
	URL         string            `json:"url,omitempty"`
	URLFile     string            `json:"url_file,omitempty"`
	Method      string            `json:"method,omitempty"` // default POST
	Headers     map[string]string `json:"headers,omitempty"`
	Body        string            `json:"body,omitempty"`         // template; default the mutator's output
	ContentType string            `json:"content_type,omitempty"` // default application/json
	TLS         *HandlerTLS       `json:"tls,omitempty"`
	HandlerAuth
}

// Namespace separates resources: every other namespaced resource is in one.
type Namespace struct {
	Name string `json:"name"`
}

// NobodysHash is the hash of a user without a password. It is well-formed and not the hash of any known password. It is
// also compared for unknown users, so that the response time does not reveal them.
const NobodysHash = "$2a$10$lapwinglapwinglapwinguxSoZB3CPOtgKTM3YNrN0AEwPMUpyOnG"

// User is an account of a person or an agent. PasswordHash is bcrypt.
type User struct {
	Username     string   `json:"username"`
	Password     string   `json:"password,omitempty"`
	PasswordHash string   `json:"password_hash,omitempty"`
	Groups       []string `json:"groups,omitempty"`
	Disabled     bool     `json:"disabled"`
	// NoPassword is lapwing's own: the user has no password, so cannot sign in with one. It is not stored: answers of the
	// API have it of users whose hash is NobodysHash.
	NoPassword bool `json:"no_password,omitempty"`
	// SignedOut is when all sign-ins of the user were ended because another user set the password, in Unix seconds. It
	// is not shown.
	SignedOut int64 `json:"signed_out,omitempty"`
}

// Rule allows verbs on resources, or only on those with the given names. "*" means all.
type Rule struct {
	Verbs         []string `json:"verbs"`          // get, list, create, update, delete, or * for all
	Resources     []string `json:"resources"`      // plural names of kinds, as checks, or * for all
	ResourceNames []string `json:"resource_names"` // only objects of these names; empty: all
	// LabelSelector is lapwing's own: it limits the rule to objects whose labels match.
	LabelSelector string `json:"label_selector,omitempty"`
}

// ClusterRole has rules that bindings grant in all namespaces or in one.
type ClusterRole struct {
	Metadata ObjectMeta `json:"metadata"`
	Rules    []Rule     `json:"rules"` // rights that it grants
}

// Role has rules that bindings of its namespace grant there.
type Role struct {
	Metadata ObjectMeta `json:"metadata"`
	Rules    []Rule     `json:"rules"` // rights that it grants
}

// RoleRef names a Role or ClusterRole.
type RoleRef struct {
	Type string `json:"type"` // Role or ClusterRole
	Name string `json:"name"`
}

// Subject is a User or Group that a binding grants a role to.
type Subject struct {
	Type string `json:"type"` // User or Group
	Name string `json:"name"`
}

// ClusterRoleBinding grants a ClusterRole in all namespaces.
type ClusterRoleBinding struct {
	Metadata ObjectMeta `json:"metadata"`
	RoleRef  RoleRef    `json:"role_ref"` // the role that they get
	Subjects []Subject  `json:"subjects"` // users and groups that get the role
}

// RoleBinding grants a Role or ClusterRole in its namespace.
type RoleBinding struct {
	Metadata ObjectMeta `json:"metadata"`
	RoleRef  RoleRef    `json:"role_ref"` // the role that they get
	Subjects []Subject  `json:"subjects"` // users and groups that get the role
}
