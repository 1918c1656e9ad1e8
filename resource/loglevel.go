package resource

// LogLevels says which lines a backend logs.
type LogLevels struct {
	// Level is the least level of lines, by the configuration.
	Level string `json:"level"`
	// Changed are the changes of users, which end by themselves.
	Changed []LogLevel `json:"changed"`
	// Components are the parts of the backend that a change may name.
	Components []string `json:"components"`
}

// LogLevel is a change of what a backend logs, for some time.
type LogLevel struct {
	Component string `json:"component,omitempty"` // "" for all
	Level     string `json:"level"`               // trace, debug, info, warn or error
	// Until is when the change ends, Unix seconds.
	Until int64 `json:"until"`
}

// LogLevelRequest asks for a change.
type LogLevelRequest struct {
	Component string `json:"component,omitempty"`
	Level     string `json:"level"`
	Seconds   int64  `json:"seconds,omitempty"` // how long it lasts; default 900, 86400 at most
}
