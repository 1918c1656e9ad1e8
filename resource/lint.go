package resource

// LintFinding is something doubtful about a definition.
type LintFinding struct {
	// Severity is warning, note for what may be on purpose, or unseen for a kind that was not looked at, since the user may
	// not list it: it has no Name then.
	Severity string `json:"severity"`
	// Kind is the kind's command, as check, and Resource its name in roles' rules, as checks.
	Kind      string `json:"kind"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Text      string `json:"text"`
	Hint      string `json:"hint,omitempty"` // a command that helps

	// Names is the resource that the definition names one of, which the text says something about; "" for none. Only users
	// that may list it may read the finding.
	Names string `json:"-"`
}
