package resource

// CheckRuns says when a check runs next.
type CheckRuns struct {
	Namespace string `json:"namespace"`
	Check     string `json:"check"`
	// Problem says why the check never runs by itself; "" if it does.
	Problem string `json:"problem,omitempty"`
	// Every is the distance between runs in seconds; 0 for a cron, whose runs are at other distances.
	Every int64 `json:"every,omitempty"`
	// Spread says that each lapwing agent has a moment of its own in each interval: Runs are those of other agents then.
	Spread bool `json:"spread,omitempty"`
	// Agent is the lapwing agent whose own moments Runs are, and Millis how many milliseconds behind the whole second each of
	// them is. The backend asks other agents for each run.
	Agent  string `json:"agent,omitempty"`
	Millis int64  `json:"millis,omitempty"`
	// Entity is the answer about one entity, if one was asked for. If it would not run the check, Runs is empty.
	Entity *CheckTarget `json:"entity,omitempty"`
	// Runs are the next runs, Unix seconds, and Pauses the times before the last of them without runs.
	Runs   []int64    `json:"runs"`
	Pauses []RunPause `json:"pauses,omitempty"`
	// Searched is the Unix second up to which there are no more runs, if Runs has fewer than were asked for.
	Searched int64 `json:"searched,omitempty"`
	// Now says why no agent would run the check now.
	Now []string `json:"now,omitempty"`
	// Missing says which calendars of the check count as missing: it runs without regard to them.
	Missing []string `json:"missing_calendars,omitempty"`
	// TimeZones are those of the check's calendars, by name.
	TimeZones map[string]string `json:"time_zones,omitempty"`
}

// RunPause is a time in which a check does not run.
type RunPause struct {
	From  int64  `json:"from"`  // Unix seconds, of the first run that is left out
	Until int64  `json:"until"` // Unix seconds, of the next run; 0 if it was not found
	Why   string `json:"why"`   // subdued, or calendars
}

// CheckTargets says which agents would run a check now.
type CheckTargets struct {
	Namespace     string              `json:"namespace"`
	Check         string              `json:"check"`
	Subscriptions []SubscriptionCount `json:"subscriptions"`
	// Agents is how many connected agents have one of the subscriptions, and Names the first of them; Names is null if the
	// user may not list entities.
	Agents int      `json:"agents"`
	Names  []string `json:"names"`
	// NotConnected is how many agent entities have one of the subscriptions and no connected agent, and NotConnectedNames the
	// first of them. The names are left out if the user may not list entities.
	NotConnected      int      `json:"not_connected"`
	NotConnectedNames []string `json:"not_connected_names,omitempty"`
	// RoundRobin says that one of the agents runs it at a time.
	RoundRobin bool `json:"round_robin,omitempty"`
	// Proxies is how many entities the proxy requests of the check match: each gets a run of its own.
	Proxies *int `json:"proxies,omitempty"`
	// Now says why the check does not run now: it is not published, subdued, or outside of its calendars.
	Now []string `json:"now"`
	// Missing says which calendars of the check count as missing: it runs without regard to them.
	Missing []string `json:"missing_calendars,omitempty"`
	// Entity is the answer about one entity, if one was asked for.
	Entity *CheckTarget `json:"entity,omitempty"`
}

// CheckTarget says whether one entity's agent would run a check now, and why not.
type CheckTarget struct {
	Name string   `json:"name"`
	Runs bool     `json:"runs"`
	Why  []string `json:"why"`
}

// SubscriptionCount says what has a subscription.
type SubscriptionCount struct {
	Name     string `json:"name"`
	Agents   int    `json:"agents"`   // connected ones
	Entities int    `json:"entities"` // defined ones
	Checks   int    `json:"checks"`   // that name it
}

// Subscription is a subscription with the names of what has it, at most MaxSubscriptionNames of each.
type Subscription struct {
	SubscriptionCount
	CheckNames  []string `json:"check_names"`
	AgentNames  []string `json:"agent_names"`
	EntityNames []string `json:"entity_names"` // of entities without a connected agent
}

// MaxSubscriptionNames bounds each list of names in answers about subscriptions and targets.
const MaxSubscriptionNames = 1000
