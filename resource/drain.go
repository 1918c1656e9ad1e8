package resource

// Drain says whether a backend sends its agents to other backends.
type Drain struct {
	Draining    bool  `json:"draining"`
	Since       int64 `json:"since,omitempty"`        // Unix seconds
	OverSeconds int64 `json:"over_seconds,omitempty"` // the time for all of them to leave
	Sessions    int   `json:"sessions"`               // of agents that are connected
}
