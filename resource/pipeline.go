package resource

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// EventFilter lets an event pass to a handler, or keeps it back, if all its expressions are true for the event.
type EventFilter struct {
	Metadata      ObjectMeta      `json:"metadata"`
	Action        string          `json:"action"`         // allow lets an event through if all expressions hold, deny if none does
	Expressions   []string        `json:"expressions"`    // JavaScript, as event.check.occurrences == 1
	When          *TimeWindowWhen `json:"when,omitempty"` // when the filter applies; see docs/filters.md
	RuntimeAssets []string        `json:"runtime_assets"` // names of assets with functions for the expressions
	// Author is set by the server and not shown. The expressions read only events that the author may read.
	Author *Author `json:"author,omitempty"`
}

// Validate returns the reason why f is not acceptable, or nil. It does not parse the expressions: package api does.
func (f *EventFilter) Validate() error {
	var wrong mistakes
	wrong.add("metadata.name", prefixed("filter name", checkName(f.Metadata.Name)))
	wrong.add("runtime_assets", checkAssetNames(f.RuntimeAssets))
	if f.Action != "allow" && f.Action != "deny" {
		wrong.add("action", fmt.Errorf("action '%s' is not valid", f.Action))
	}
	if len(f.Expressions) == 0 {
		wrong.add("expressions", errors.New("filter must have one or more expressions"))
	}
	if f.Metadata.Namespace == "" {
		wrong.add("metadata.namespace", errNoNamespace)
	}
	return wrong.asError()
}

// Mutator turns an event into the handler's input, by a command or by a script in this process.
type Mutator struct {
	Metadata      ObjectMeta `json:"metadata"`
	Type          string     `json:"type,omitempty"`    // pipe (default) or javascript
	Command       string     `json:"command,omitempty"` // of type pipe: shell command that reads the event and writes the result
	Eval          string     `json:"eval,omitempty"`    // of type javascript: the body of a function that changes event
	Timeout       uint32     `json:"timeout"`           // seconds until it fails
	EnvVars       []string   `json:"env_vars"`          // NAME=value, for the command
	RuntimeAssets []string   `json:"runtime_assets"`    // names of assets that it needs
	Secrets       []Secret   `json:"secrets"`           // environment variables with secrets
	// Author is set by the server and not shown. The script reads only events that the author may read.
	Author *Author `json:"author,omitempty"`
}

// Validate returns the reason why m is not acceptable, or nil.
func (m *Mutator) Validate() error {
	var wrong mistakes
	wrong.add("metadata.name", prefixed("mutator name", checkName(m.Metadata.Name)))
	switch m.Type {
	case "", "pipe":
		if m.Command == "" && m.Eval != "" {
			wrong.add("eval", errors.New(`"eval" used with pipe mutator, should be "command"`))
		}
	case "javascript":
		if m.Command != "" {
			wrong.add("command", errors.New(`"command" used with javascript mutator, should be "eval"`))
		}
	default:
		wrong.add("type", fmt.Errorf("invalid mutator type %q, valid types are %q", m.Type, "javascript, pipe"))
	}
	if m.Command == "" && m.Eval == "" {
		wrong.add("", errors.New("mutator command or eval must be set"))
	}
	wrong.add("runtime_assets", checkAssetNames(m.RuntimeAssets))
	if m.Metadata.Namespace == "" {
		wrong.add("metadata.namespace", errNoNamespace)
	}
	wrong.add("", checkNumbers(number{"mutator timeout", int64(m.Timeout), boundInterval}))
	wrong.add("env_vars", checkEnvVars(m.EnvVars))
	return wrong.asError()
}

// Pipeline has workflows: ways from an event to handlers.
type Pipeline struct {
	Metadata  ObjectMeta         `json:"metadata"`
	Workflows []PipelineWorkflow `json:"workflows"` // ways that each event goes, one after the other
}

// PipelineWorkflow is one way from an event to a handler, with its own filters and mutator.
type PipelineWorkflow struct {
	Name    string               `json:"name"`
	Filters []*ResourceReference `json:"filters,omitempty"` // all must let the event through
	Mutator *ResourceReference   `json:"mutator,omitempty"` // changes the event for the handler
	Handler *ResourceReference   `json:"handler"`           // gets the event
}

// Validate returns the reason why p is not acceptable, or nil. The resources it refers to need not exist.
func (p *Pipeline) Validate() error {
	var wrong mistakes
	wrong.add("metadata.name", prefixed("name", checkName(p.Metadata.Name)))
	if p.Metadata.Namespace == "" {
		wrong.add("metadata.namespace", errNoNamespace)
	}
	for i := range p.Workflows {
		if err := p.Workflows[i].validate(); err != nil {
			wrong.add(item("workflows", i), fmt.Errorf("workflow %w", err))
		}
	}
	return wrong.asError()
}

func (w *PipelineWorkflow) validate() error {
	if err := checkName(w.Name); err != nil {
		return fmt.Errorf("name %w", err)
	}
	for _, f := range w.Filters {
		if f == nil {
			return errors.New("filter must be set")
		}
		if err := f.validate("filter", "filtering", "EventFilter"); err != nil {
			return err
		}
	}
	if w.Mutator != nil {
		if err := w.Mutator.validate("mutator", "mutating", "Mutator"); err != nil {
			return err
		}
	}
	if w.Handler == nil {
		return errors.New("handler must be set")
	}
	return w.Handler.validate("handler", "handling", "Handler")
}

// validate refuses a reference to any other type than typ.
func (r *ResourceReference) validate(role, doing, typ string) error {
	switch {
	case r.Name == "":
		return fmt.Errorf("%s name must not be empty", role)
	case r.Type == "":
		return fmt.Errorf("%s type must be set", role)
	case r.APIVersion == "":
		return fmt.Errorf("%s api_version must be set", role)
	case len(r.Name) > MaxName:
		return fmt.Errorf("%s name %w", role, checkLength(len(r.Name), MaxName))
	case r.APIVersion != pipelineAPIVersion || r.Type != typ:
		return fmt.Errorf("%s resource type not capable of %s events: %s.%s", role, doing, r.APIVersion, r.Type)
	}
	return nil
}

// FallbackPipeline lists pipelines in order. An event goes to the first, and to the next one when that fails.
type FallbackPipeline struct {
	Metadata  ObjectMeta           `json:"metadata"`
	Pipelines []*ResourceReference `json:"pipelines"` // pipelines to try, in order, until one succeeds
}

// maxFallbacks bounds the pipelines of a FallbackPipeline.
const maxFallbacks = 16

// Validate returns the reason why f is not acceptable, or nil. The pipelines it refers to need not exist.
func (f *FallbackPipeline) Validate() error {
	if err := checkName(f.Metadata.Name); err != nil {
		return fmt.Errorf("name %w", err)
	}
	if f.Metadata.Namespace == "" {
		return errNoNamespace
	}
	if len(f.Pipelines) == 0 {
		return errors.New("pipelines must not be empty")
	}
	if len(f.Pipelines) > maxFallbacks {
		return fmt.Errorf("pipelines must not be more than %d", maxFallbacks)
	}
	for i, ref := range f.Pipelines {
		if ref == nil {
			return errors.New("pipeline must be set")
		}
		if err := ref.validate("pipeline", "falling back for", "Pipeline"); err != nil {
			return err
		}
		if slices.ContainsFunc(f.Pipelines[:i], func(o *ResourceReference) bool { return o.Name == ref.Name }) {
			return fmt.Errorf("pipeline %s must not be named twice", ref.Name)
		}
	}
	return nil
}

// checkFallback checks a check's reference to a FallbackPipeline. A check has either that or pipelines.
func checkFallback(ref *ResourceReference, pipelines []ResourceReference) error {
	switch {
	case ref == nil:
		return nil
	case len(pipelines) > 0:
		return errors.New("pipelines and fallback_pipeline must not both be set")
	}
	return ref.validate("fallback_pipeline", "falling back for", "FallbackPipeline")
}

// Validate returns the reason why h is not acceptable, or nil.
func (h *HookConfig) Validate() error {
	var wrong mistakes
	wrong.add("metadata.name", prefixed("hook name", checkName(h.Metadata.Name)))
	if h.Command == "" {
		wrong.add("command", errors.New("command cannot be empty"))
	}
	if h.Timeout == 0 {
		wrong.add("timeout", errors.New("hook timeout must be greater than 0"))
	}
	wrong.add("", checkNumbers(number{"hook timeout", int64(h.Timeout), boundInterval}))
	wrong.add("runtime_assets", checkAssetNames(h.RuntimeAssets))
	if h.Metadata.Namespace == "" {
		wrong.add("metadata.namespace", errNoNamespace)
	}
	return wrong.asError()
}

// minSHA512 is the length of a SHA-512 checksum in hexadecimal digits.
const minSHA512 = 128

// Validate returns the reason why a is not acceptable, or nil. An asset with builds needs no archive of its own.
func (a *Asset) Validate() error {
	if err := checkAssetName(a.Metadata.Name); err != nil {
		return InField("metadata.name", err)
	}
	if a.Metadata.Namespace == "" {
		return InField("metadata.namespace", errNoNamespace)
	}
	if len(a.Builds) == 0 {
		return checkArchive(a.URL, a.Sha512)
	}
	for i, b := range a.Builds {
		var url, sha512 string
		if b != nil {
			url, sha512 = b.URL, b.Sha512
		}
		if err := checkArchive(url, sha512); err != nil {
			return InField(item("builds", i), err)
		}
	}
	return nil
}

func checkArchive(url, sha512 string) error {
	switch {
	case sha512 == "":
		return InField("sha512", errors.New("SHA-512 checksum cannot be empty"))
	case len(sha512) < minSHA512:
		return InField("sha512", fmt.Errorf("SHA-512 checksum must be at least %d characters", minSHA512))
	case url == "":
		return InField("url", errors.New("URL cannot be empty"))
	}
	return nil
}

// checkAssetNames checks the assets that something needs at run time.
func checkAssetNames(names []string) error {
	for i, name := range names {
		if err := checkAssetName(name); err != nil {
			return InField(fmt.Sprintf("[%d]", i), fmt.Errorf("asset's %w", err))
		}
	}
	return nil
}

// hookTypes are the results that hooks may be for, in addition to exit statuses.
var hookTypes = []string{"ok", "warning", "critical", "unknown", "non-zero"}

// Validate returns the reason why h is not acceptable, or nil. A check's definition may have types that are refused
// here, as in Sensu.
func (h *HookList) Validate() error {
	if !slices.Contains(hookTypes, h.Type) && !exitStatus(h.Type) {
		return fmt.Errorf("hook type %q is not valid, it must be an exit status from 0 to 255 or one of %s", h.Type,
			strings.Join(hookTypes, ", "))
	}
	if len(h.Hooks) == 0 || slices.Contains(h.Hooks, "") {
		return fmt.Errorf("hooks of type %s must not be empty", h.Type)
	}
	return nil
}

// exitStatus reports whether s is 0 to 255 in its shortest form.
func exitStatus(s string) bool {
	if s == "" || len(s) > 3 || len(s) > 1 && s[0] == '0' {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 255
}

// TessenConfig is whether to report usage to Sensu. lapwing stores it for clients that ask, and never reports anything.
type TessenConfig struct {
	OptOut bool `json:"opt_out"`
}
