package resource

import "github.com/google/uuid"

// Event reports the result of a check, metrics, or both, about an entity. Agents, users and deadlines make events.
type Event struct {
	Timestamp int64               `json:"timestamp,omitempty" pb:"1"` // Unix seconds
	Entity    *Entity             `json:"entity,omitempty" pb:"2"`
	Check     *Check              `json:"check,omitempty" pb:"3"`
	Metrics   *Metrics            `json:"metrics,omitempty" pb:"4"`
	Metadata  ObjectMeta          `json:"metadata" pb:"5,always"`
	ID        []byte              `json:"id" pb:"6"` // UUID, 16 bytes
	Sequence  int64               `json:"sequence" pb:"7"`
	Pipelines []ResourceReference `json:"pipelines" pb:"8"`
}

// NewEventID returns a random UUID for Event.ID.
func NewEventID() []byte {
	id := uuid.New()
	return id[:]
}

// HasCheck reports whether e carries the result of a check.
func (e *Event) HasCheck() bool { return e.Check != nil }

// HasMetrics reports whether e carries metrics.
func (e *Event) HasMetrics() bool { return e.Metrics != nil }

// IsIncident reports whether e's check is not OK.
func (e *Event) IsIncident() bool { return e.Check != nil && e.Check.Status != 0 }

// IsResolution reports whether e's check is OK and was not OK before. The history must end with e's own result.
func (e *Event) IsResolution() bool {
	if e.Check == nil || e.Check.Status != 0 {
		return false
	}
	h := e.Check.History
	return len(h) >= 2 && h[len(h)-2].Status != 0
}

// IsSilenced reports whether a silence applies to e's check.
func (e *Event) IsSilenced() bool { return e.Check != nil && len(e.Check.Silenced) > 0 }

// Metrics has points and the names of the handlers they go to.
type Metrics struct {
	Handlers []string      `json:"handlers" pb:"1"`
	Points   []MetricPoint `json:"points" pb:"2"`
}

// MetricPoint is one value of one series. The unit of Timestamp depends on its source.
type MetricPoint struct {
	Name      string      `json:"name,omitempty" pb:"1"`
	Value     float64     `json:"value" pb:"2"`
	Timestamp int64       `json:"timestamp" pb:"3"`
	Tags      []MetricTag `json:"tags" pb:"4"`
}

// MetricTag is a name and value on a point.
type MetricTag struct {
	Name  string `json:"name,omitempty" pb:"1"`
	Value string `json:"value,omitempty" pb:"2"`
}

// MetricThreshold makes a check status from metric values. The agent applies it.
type MetricThreshold struct {
	Name       string                `json:"name" pb:"1"`
	Tags       []MetricThresholdTag  `json:"tags" pb:"2"`
	Thresholds []MetricThresholdRule `json:"thresholds" pb:"3"`
	NullStatus uint32                `json:"null_status" pb:"4"`
}

// MetricThresholdTag selects points by tag.
type MetricThresholdTag struct {
	Name  string `json:"name" pb:"1"`
	Value string `json:"value" pb:"2"`
}

// MetricThresholdRule is a range outside which Status applies. An empty bound is open.
type MetricThresholdRule struct {
	Min    string `json:"min" pb:"1"`
	Max    string `json:"max" pb:"2"`
	Status uint32 `json:"status" pb:"3"`
}
