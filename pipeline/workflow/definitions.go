package workflow

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// definitions are those of a snapshot. Drafts take precedence.
type definitions struct {
	*config.Snapshot
	drafts *Overlay // nil if there are none
}

func (d definitions) handler(namespace, name string) (*resource.Handler, bool) {
	if d.drafts != nil {
		if h, ok := draft(d.drafts.Handlers, namespace, name, func(h *resource.Handler) *resource.ObjectMeta { return &h.Metadata }); ok {
			return h, true
		}
	}
	return config.Get(d.Snapshot, config.Handlers, namespace, name)
}

func (d definitions) filter(namespace, name string) (*resource.EventFilter, bool) {
	if d.drafts != nil {
		if f, ok := draft(d.drafts.Filters, namespace, name, func(f *resource.EventFilter) *resource.ObjectMeta { return &f.Metadata }); ok {
			return f, true
		}
	}
	return config.Get(d.Snapshot, config.Filters, namespace, name)
}

func (d definitions) mutator(namespace, name string) (*resource.Mutator, bool) {
	if d.drafts != nil {
		if m, ok := draft(d.drafts.Mutators, namespace, name, func(m *resource.Mutator) *resource.ObjectMeta { return &m.Metadata }); ok {
			return m, true
		}
	}
	return config.Get(d.Snapshot, config.Mutators, namespace, name)
}

func (d definitions) pipeline(namespace, name string) (*resource.Pipeline, bool) {
	if d.drafts != nil {
		if p, ok := draft(d.drafts.Pipelines, namespace, name, func(p *resource.Pipeline) *resource.ObjectMeta { return &p.Metadata }); ok {
			return p, true
		}
	}
	return config.Get(d.Snapshot, config.Pipelines, namespace, name)
}

// draft finds a draft by its name. A draft without a namespace counts for every namespace.
func draft[T any](drafts []*T, namespace, name string, meta func(*T) *resource.ObjectMeta) (*T, bool) {
	for _, d := range drafts {
		if m := meta(d); m.Name == name && (m.Namespace == "" || m.Namespace == namespace) {
			return d, true
		}
	}
	return nil, false
}

// fallbackOf returns the pipelines that a check's events go through, each if the one before it fails; nil if there are
// none.
func (d definitions) fallbackOf(namespace, check string) []string {
	if check == "" {
		return nil
	}
	c, ok := config.Get(d.Snapshot, config.Checks, namespace, check)
	if !ok || c.FallbackPipeline == nil {
		return nil
	}
	f, ok := config.Get(d.Snapshot, config.FallbackPipelines, namespace, c.FallbackPipeline.Name)
	if !ok {
		return nil
	}
	names := make([]string, len(f.Pipelines))
	for i, ref := range f.Pipelines {
		names[i] = ref.Name
	}
	return names
}
