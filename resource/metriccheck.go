package resource

import (
	"errors"
	"fmt"
	"math"
)

// Names of the label of the check and of the event's annotation that mark an event as a metric check's.
const (
	MetricCheckLabel      = "lapwing.io/metric-check" // the name of the metric check
	MetricCheckAnnotation = "lapwing.io/metric-check" // a MetricFinding in JSON
)

// Sources of a metric check's expression.
const (
	GraphiteSource = "graphite"
	PromQLSource   = "promql"
)

// MetricCheck is a check that the backend computes from stored metrics: it fails if a series that the expression selects
// is beyond a threshold.
type MetricCheck struct {
	Metadata ObjectMeta `json:"metadata"`
	// Source is the language of Expr: graphite (default) or promql.
	Source string `json:"source,omitempty"`
	Expr   string `json:"expr"` // a target of Graphite, or an expression of PromQL
	// Interval is the time between two evaluations, in seconds.
	Interval uint32 `json:"interval"`
	// Window is how far back a value counts, in seconds; a series without one is absent. Default: five intervals.
	Window uint32 `json:"window,omitempty"`
	// Reduce makes one value of those in the window: last (default), average, max, min or sum. PromQL has functions for
	// that, so there it is always the last one.
	Reduce string `json:"reduce,omitempty"`
	// Warning and Critical are the thresholds for the statuses 1 and 2.
	Warning  *MetricCheckThreshold `json:"warning,omitempty"`
	Critical *MetricCheckThreshold `json:"critical,omitempty"`
	// For is how long a series must be beyond a threshold until the check fails, and KeepFiringFor how long it must be
	// back until the check passes again, in seconds.
	For           uint32 `json:"for,omitempty"`
	KeepFiringFor uint32 `json:"keep_firing_for,omitempty"`
	// AbsentStatus is the status of a series that was there and has no value in the window. Default 3.
	AbsentStatus *uint32 `json:"absent_status,omitempty"`
	// AbsentFor is how long a series may be absent until its event is resolved and removed, in seconds. Default one day.
	AbsentFor uint32 `json:"absent_for,omitempty"`
	// EntityNode is the node of the series' name that names the entity of the event, counted from 0, or from the end if
	// it is negative; EntityLabel is the label or tag that names it. Default: Result.Entity.
	EntityNode  *int   `json:"entity_node,omitempty"`
	EntityLabel string `json:"entity_label,omitempty"`
	// Result describes the events that the metric check makes.
	Result ComputedResult `json:"result"`
	// Author is the user who wrote the definition. Series are only those that the author may see. The server sets it.
	Author *Author `json:"author,omitempty"`
}

// MetricCheckThreshold is reached by a value above or below a bound.
type MetricCheckThreshold struct {
	Above *float64 `json:"above,omitempty"`
	Below *float64 `json:"below,omitempty"`
}

// MetricFinding is what a metric check finds for one entity.
type MetricFinding struct {
	Entity string `json:"entity"`
	Check  string `json:"check"`
	Status uint32 `json:"status"`
	Output string `json:"output"`
	// Series that are in the state of the result, at most ten.
	Series []MetricFindingSeries `json:"series"`
	// Changes of the status in the time that was asked for, oldest first.
	Changes []MetricStatusChange `json:"changes,omitempty"`
}

// MetricFindingSeries is a series with the value that was compared, null if it is absent.
type MetricFindingSeries struct {
	Name  string   `json:"name"`
	Value *float64 `json:"value"`
	// Since is when it came into the state, in Unix seconds.
	Since int64 `json:"since,omitempty"`
	// PendingSince is when it came beyond a higher threshold, in Unix seconds, while For has not passed. KeptUntil is when
	// the state ends that only KeepFiringFor holds.
	PendingSince int64 `json:"pending_since,omitempty"`
	KeptUntil    int64 `json:"kept_until,omitempty"`
}

// MetricStatusChange is a change of a result's status.
type MetricStatusChange struct {
	At     int64  `json:"at"` // Unix seconds
	Status uint32 `json:"status"`
}

// MetricPreview is what a metric check would have done in a range of time.
type MetricPreview struct {
	From  int64 `json:"from"`
	Until int64 `json:"until"`
	// Fired is how many times a result would have begun to fail.
	Fired    int             `json:"fired"`
	Findings []MetricFinding `json:"findings"`
}

// CheckName returns the check of the metric check's events.
func (m *MetricCheck) CheckName() string {
	if m.Result.Check != "" {
		return m.Result.Check
	}
	return m.Metadata.Name
}

// EntityName returns the entity of events whose series does not name one.
func (m *MetricCheck) EntityName() string {
	if m.Result.Entity != "" {
		return m.Result.Entity
	}
	return m.Metadata.Name
}

// WindowSeconds returns how far back a value counts.
func (m *MetricCheck) WindowSeconds() int64 {
	if m.Window > 0 {
		return int64(m.Window)
	}
	return 5 * int64(m.Interval)
}

// Validate returns the reason why m is not acceptable, or nil. It does not parse the expression: package api does.
func (m *MetricCheck) Validate() error {
	if err := checkName(m.Metadata.Name); err != nil {
		return fmt.Errorf("metric check name %w", err)
	}
	if m.Metadata.Namespace == "" {
		return errNoNamespace
	}
	if err := checkName(m.EntityName()); err != nil {
		return fmt.Errorf("result entity name %w", err)
	}
	if err := checkName(m.CheckName()); err != nil {
		return fmt.Errorf("result check name %w", err)
	}
	switch {
	case m.Source != "" && m.Source != GraphiteSource && m.Source != PromQLSource:
		return fmt.Errorf("source must be %s or %s, not %q", GraphiteSource, PromQLSource, m.Source)
	case m.Expr == "":
		return errors.New("expr must be set")
	case m.Interval < 1:
		return errors.New("interval must be greater than 0")
	case m.Interval > maxAggregateInterval:
		return fmt.Errorf("interval must not be greater than %d", maxAggregateInterval)
	case m.CheckName() == "keepalive":
		return errors.New("result check cannot be keepalive")
	case m.Warning == nil && m.Critical == nil:
		return errors.New("warning or critical must be set")
	case m.AbsentStatus != nil && *m.AbsentStatus > 255:
		return errors.New("absent_status must not be greater than 255")
	case m.EntityNode != nil && m.EntityLabel != "":
		return errors.New("entity_node and entity_label cannot both be set")
	}
	switch m.Reduce {
	case "", "last", "average", "max", "min", "sum":
	default:
		return fmt.Errorf("reduce must be last, average, max, min or sum, not %q", m.Reduce)
	}
	for _, s := range []struct {
		name  string
		value uint32
	}{{"window", m.Window}, {"for", m.For}, {"keep_firing_for", m.KeepFiringFor}} {
		if s.value > 7*86400 {
			return fmt.Errorf("%s must not be greater than %d", s.name, 7*86400)
		}
	}
	if n := (uint64(m.For) + uint64(m.KeepFiringFor)) / uint64(m.Interval); n > 10_000 {
		return fmt.Errorf("for and keep_firing_for are %d intervals: there must be at most 10000", n)
	}
	if err := m.Warning.validate("warning"); err != nil {
		return err
	}
	if err := m.Critical.validate("critical"); err != nil {
		return err
	}
	return validPipelines(m.Result.Pipelines)
}

// validPipelines checks references to pipelines.
func validPipelines(refs []ResourceReference) error {
	for i := range refs {
		p := refs[i]
		if p.Name == "" || p.APIVersion != pipelineAPIVersion || p.Type != pipelineType {
			return fmt.Errorf("pipeline reference is invalid: resource type not capable of acting as a pipeline: %s.%s", p.APIVersion, p.Type)
		}
	}
	return nil
}

func (t *MetricCheckThreshold) validate(name string) error {
	if t == nil {
		return nil
	}
	if t.Above == nil && t.Below == nil {
		return fmt.Errorf("%s needs above or below", name)
	}
	for _, v := range []*float64{t.Above, t.Below} {
		if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			return fmt.Errorf("%s must be a number", name)
		}
	}
	return nil
}

// Reached reports whether a value is beyond the threshold.
func (t *MetricCheckThreshold) Reached(value float64) bool {
	return t != nil && (t.Above != nil && value > *t.Above || t.Below != nil && value < *t.Below)
}
