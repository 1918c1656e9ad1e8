package resource

// Orphan is an event that gets no more updates, because its entity or its check is gone.
type Orphan struct {
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	Missing   string `json:"missing"`  // what is not defined any more: entity or check
	Received  int64  `json:"received"` // when the event was, Unix seconds
}

// Values of Orphan.Missing.
const (
	OrphanOfEntity = "entity"
	OrphanOfCheck  = "check"
)
