package resource

import (
	"errors"
	"fmt"
	"math"
)

// AggregateAPIVersion is the version of aggregates in wrapped resources.
const AggregateAPIVersion = "lapwing/v1"

// Names of the labels of the check and of the event's annotation that mark an event as an aggregate's.
const (
	AggregateLabel      = "lapwing.io/aggregate"       // the name of the aggregate
	AggregateGroupLabel = "lapwing.io/aggregate-group" // the value that the members have in common
	AggregateAnnotation = "lapwing.io/aggregate"       // an AggregateCount in JSON
)

// Aggregate is a check that the backend computes from the newest results of other checks: it fails if too many of them
// fail.
type Aggregate struct {
	Metadata ObjectMeta `json:"metadata"`
	// LabelSelector and FieldSelector select the members among the events of the namespace. An event must match both.
	// Events of the aggregate itself are never members.
	LabelSelector string `json:"label_selector,omitempty"`
	FieldSelector string `json:"field_selector,omitempty"`
	// GroupBy is a field as in selectors, for example event.entity.labels.rack. Each of its values has a result of its
	// own.
	GroupBy string `json:"group_by,omitempty"`
	// Failing is a field selector for the members that count as failing. Default: the members that are not OK.
	Failing string `json:"failing,omitempty"`
	// IgnoreSilenced leaves silenced members out.
	IgnoreSilenced bool `json:"ignore_silenced,omitempty"`
	// Warning and Critical are the thresholds for the statuses 1 and 2.
	Warning  *AggregateThreshold `json:"warning,omitempty"`
	Critical *AggregateThreshold `json:"critical,omitempty"`
	// MinMembers is the least number of members. With fewer, the result is FewStatus, default 3.
	MinMembers uint32  `json:"min_members,omitempty"`
	FewStatus  *uint32 `json:"few_status,omitempty"`
	Interval   uint32  `json:"interval"` // seconds
	// Result describes the events that the aggregate makes.
	Result ComputedResult `json:"result"`
	// Author is the user who wrote the definition. Members are only events that the author may list. The server sets
	// it. It is nil in definitions of older releases: their members are all events of the namespace.
	Author *Author `json:"author,omitempty"`
}

// AggregateThreshold is reached at a share of the members or at a number of them, whichever comes first.
type AggregateThreshold struct {
	Percent float64 `json:"percent,omitempty"`
	Count   uint32  `json:"count,omitempty"`
}

// ComputedResult describes the events that an aggregate or a metric check makes. They belong to a proxy entity, or to an
// agent's.
type ComputedResult struct {
	// Entity is by default the definition's name. With the group_by of an aggregate, a dash and the value follow. A metric
	// check has it for series that name no entity.
	Entity string `json:"entity,omitempty"`
	// Check is by default "aggregate" for an aggregate, and the definition's name for a metric check.
	Check string `json:"check,omitempty"`
	// Labels and Annotations of the check.
	Labels      map[string]string   `json:"labels,omitempty"`
	Annotations map[string]string   `json:"annotations,omitempty"`
	Handlers    []string            `json:"handlers,omitempty"`
	Pipelines   []ResourceReference `json:"pipelines,omitempty"`
}

// AggregateCount is what an aggregate counted, in one group if it has groups.
type AggregateCount struct {
	Group   string  `json:"group,omitempty"`
	Members int     `json:"members"`
	Failing int     `json:"failing"`
	Percent float64 `json:"percent"`
}

// AggregateEvaluation is what an aggregate would report now, for one group if it has groups.
type AggregateEvaluation struct {
	AggregateCount
	Entity string `json:"entity"`
	Check  string `json:"check"`
	Status uint32 `json:"status"`
	Output string `json:"output"`
}

// EntityName returns the entity of the aggregate's events.
func (a *Aggregate) EntityName() string {
	if a.Result.Entity != "" {
		return a.Result.Entity
	}
	return a.Metadata.Name
}

// CheckName returns the check of the aggregate's events.
func (a *Aggregate) CheckName() string {
	if a.Result.Check != "" {
		return a.Result.Check
	}
	return "aggregate"
}

// maxAggregateInterval is a day, in seconds.
const maxAggregateInterval = 86400

// Validate returns the reason why a is not acceptable, or nil. It does not parse the selectors: package api does.
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
	return validPipelines(a.Result.Pipelines)
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

// Reached reports whether the number of failing members reaches the threshold.
func (t *AggregateThreshold) Reached(failing, members int) bool {
	if t == nil || failing == 0 {
		return false
	}
	return t.Count > 0 && failing >= int(t.Count) || t.Percent > 0 && float64(failing)*100 >= t.Percent*float64(members)
}
