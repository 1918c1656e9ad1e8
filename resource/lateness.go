package resource

// CheckLateness says when a check last ran, and whether its next run is overdue.
type CheckLateness struct {
	Namespace string `json:"namespace"`
	Check     string `json:"check"`
	// LastRun is when the newest result of a run was received, Unix seconds; 0 if none is known.
	LastRun int64 `json:"last_run"`
	// Overdue is how many runs are missing since then, 100 at most; 0 if the check is on time, or its lateness unknown.
	Overdue int `json:"overdue"`
	// Since is when the first of them was due, Unix seconds; 0 if none is missing.
	Since int64 `json:"since"`
	// WithoutAgent are all subscriptions of the check if no connected agent has any of them; else it is empty.
	WithoutAgent []string `json:"without_agent"`
	// Summary says in words what is wrong; "" if nothing is.
	Summary string `json:"summary"`
}

// EventLateness is an event whose check should have had another result since.
type EventLateness struct {
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	LastRun   int64  `json:"last_run"` // when the newest result of a run was received, Unix seconds
	Overdue   int    `json:"overdue"`  // how many runs are missing since then, 100 at most
	Since     int64  `json:"since"`    // when the first of them was due, Unix seconds
	Summary   string `json:"summary"`  // the same in words
}
