package resource

import (
	"errors"
	"fmt"
	"math"
)

// AggregateAPIVersion is the version of aggregates in wrapped resources.
const AggregateAPIVersion = "lapwing/v1"

// Marks of an aggregate's events: labels of the check, and an annotation of the event.
const (
	AggregateLabel      = "lapwing.io/aggregate"       // the name of the aggregate
	AggregateGroupLabel = "lapwing.io/aggregate-group" // the value that the members have in common
	AggregateAnnotation = "lapwing.io/aggregate"       // an AggregateCount in JSON
)

// Aggregate is a check that the backend makes of other checks' newest results: it fails if too many of them do.
type Aggregate struct {
	Metadata ObjectMeta `json:"metadata"`
	// LabelSelector and FieldSelector say which events of its namespace are its members; both must hold. An aggregate's own
	// events are not among them.
	LabelSelector string `json:"label_selector,omitempty"`
	FieldSelector string `json:"field_selector,omitempty"`
	// GroupBy is a field, as in selectors, such as event.entity.labels.rack. There is a result for each of its values.
	GroupBy string `json:"group_by,omitempty"`
	// Failing is a field selector for the members that count as failing. Default: those that are not OK.
	Failing string `json:"failing,omitempty"`
	// IgnoreSilenced leaves silenced members out.
	IgnoreSilenced bool `json:"ignore_silenced,omitempty"`
	// Warning and Critical are from when on the result is 1 and 2.
	Warning  *AggregateThreshold `json:"warning,omitempty"`
	Critical *AggregateThreshold `json:"critical,omitempty"`
	// MinMembers is how many members there must be. With fewer the result is FewStatus, default 3.
	MinMembers uint32  `json:"min_members,omitempty"`
	FewStatus  *uint32 `json:"few_status,omitempty"`
	Interval   uint32  `json:"interval"` // seconds
	// Result is what the events look like.
	Result AggregateResult `json:"result"`
	// Author is the user who said what the aggregate is; its members are events that the author may list. The server sets it. Nil in
	// definitions from before there were authors: those have all events of the namespace.
	Author *Author `json:"author,omitempty"`
}

// AggregateThreshold is reached by a share of the members, or by a number of them, whichever is first.
type AggregateThreshold struct {
	Percent float64 `json:"percent,omitempty"`
	Count   uint32  `json:"count,omitempty"`
}

// AggregateResult is the events that an aggregate makes. They are of a proxy entity.
type AggregateResult struct {
	Entity string `json:"entity,omitempty"` // default the aggregate's name; with groups the value follows, after a dash
	Check  string `json:"check,omitempty"`  // default "aggregate"
	// Labels and Annotations are the check's.
	Labels      map[string]string   `json:"labels,omitempty"`
	Annotations map[string]string   `json:"annotations,omitempty"`
	Handlers    []string            `json:"handlers,omitempty"`
	Pipelines   []ResourceReference `json:"pipelines,omitempty"`
}

// AggregateCount is what an aggregate found, of one group if it has groups.
type AggregateCount struct {
	Group   string  `json:"group,omitempty"`
	Members int     `json:"members"`
	Failing int     `json:"failing"`
	Percent float64 `json:"percent"`
}

// AggregateEvaluation is what an aggregate would say now, of one group if it has groups.
type AggregateEvaluation struct {
	AggregateCount
	Entity string `json:"entity"`
	Check  string `json:"check"`
	Status uint32 `json:"status"`
	Output string `json:"output"`
}

// EntityName is the entity of an aggregate's events.
func (a *Aggregate) EntityName() string {
	if a.Result.Entity != "" {
		return a.Result.Entity
	}
	return a.Metadata.Name
}

// CheckName is the check of an aggregate's events.
func (a *Aggregate) CheckName() string {
	if a.Result.Check != "" {
		return a.Result.Check
	}
	return "aggregate"
}

// maxAggregateInterval is a day.
const maxAggregateInterval = 86400

// Validate returns the reason why a is not acceptable, if it is not. Whether the selectors can be parsed is asked elsewhere.
func (a *Aggregate) Validate() error {
	if err := checkName(a.Metadata.Name); err != nil {
		return fmt.Errorf("aggregate name %w", err)
	}
	if a.Metadata.Namespace == "" {
		return errNoNamespace
	}
	if err := checkName(a.EntityName()); err != nil {
		return fmt.Errorf("result entity name %w", err)
	}
	if err := checkName(a.CheckName()); err != nil {
		return fmt.Errorf("result check name %w", err)
	}
	switch {
	case a.LabelSelector == "" && a.FieldSelector == "":
		return errors.New("label_selector or field_selector must be set")
	case a.Warning == nil && a.Critical == nil:
		return errors.New("warning or critical must be set")
	case a.Interval < 1:
		return errors.New("interval must be greater than 0")
	case a.Interval > maxAggregateInterval:
		return fmt.Errorf("interval must not be greater than %d", maxAggregateInterval)
	case a.CheckName() == "keepalive":
		return errors.New("result check cannot be keepalive")
	case a.FewStatus != nil && *a.FewStatus > 255:
		return errors.New("few_status must not be greater than 255")
	}
	if err := a.Warning.validate("warning"); err != nil {
		return err
	}
	if err := a.Critical.validate("critical"); err != nil {
		return err
	}
	for i := range a.Result.Pipelines {
		p := a.Result.Pipelines[i]
		if p.Name == "" || p.APIVersion != pipelineAPIVersion || p.Type != pipelineType {
			return fmt.Errorf("pipeline reference is invalid: resource type not capable of acting as a pipeline: %s.%s", p.APIVersion, p.Type)
		}
	}
	return nil
}

func (t *AggregateThreshold) validate(name string) error {
	switch {
	case t == nil:
		return nil
	case math.IsNaN(t.Percent), t.Percent < 0, t.Percent > 100:
		return fmt.Errorf("%s percent must be between 0 and 100", name)
	case t.Percent == 0 && t.Count == 0:
		return fmt.Errorf("%s needs a percent or a count greater than 0", name)
	}
	return nil
}

// Reached says whether so many of the members are enough.
func (t *AggregateThreshold) Reached(failing, members int) bool {
	if t == nil || failing == 0 {
		return false
	}
	return t.Count > 0 && failing >= int(t.Count) || t.Percent > 0 && float64(failing)*100 >= t.Percent*float64(members)
}
