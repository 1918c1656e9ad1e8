package resource

// Drain says whether a backend is sending its agents to other backends.
type Drain struct {
	Draining    bool  `json:"draining"`
	Since       int64 `json:"since,omitempty"`        // Unix seconds
	OverSeconds int64 `json:"over_seconds,omitempty"` // how long all of them have to leave
	Sessions    int   `json:"sessions"`               // agents that are still connected
}
