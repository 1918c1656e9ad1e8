package resource

// Orphan is an event that nothing will follow.
type Orphan struct {
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	Missing   string `json:"missing"`  // what is not defined any more
	Received  int64  `json:"received"` // when the event was, Unix seconds
}

// What an orphan is missing.
const (
	OrphanOfEntity = "entity"
	OrphanOfCheck  = "check"
)
