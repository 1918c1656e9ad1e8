package resource

import "strings"

// Use is the name of a definition in another one.
type Use struct {
	Kind *Kind // of what is named
	Name string
}

// Word returns what a definition of the kind is called in warnings, as cluster role.
func (k *Kind) Word() string { return strings.ReplaceAll(k.Command, "-", " ") }

var (
	handlerRow     = KindFor[Handler]()
	assetRow       = KindFor[Asset]()
	hookRow        = KindFor[HookConfig]()
	pipelineRow    = KindFor[Pipeline]()
	fallbackRow    = KindFor[FallbackPipeline]()
	filterRow      = KindFor[EventFilter]()
	mutatorRow     = KindFor[Mutator]()
	calendarRow    = KindFor[Calendar]()
	contactRow     = KindFor[Contact]()
	rotaRow        = KindFor[Rota]()
	roleRow        = KindFor[Role]()
	clusterRoleRow = KindFor[ClusterRole]()
	userRow        = KindFor[User]()
)

// Uses returns what a definition names, except for the subscriptions of checks. It is nothing for kinds that name nothing.
func Uses(obj any) (namespace string, uses []Use) {
	add := func(k *Kind, names ...string) {
		for _, name := range names {
			if name != "" {
				uses = append(uses, Use{k, name})
			}
		}
	}
	addPipelines := func(refs []ResourceReference) {
		for _, r := range refs {
			if r.Type == "Pipeline" || r.Type == "" {
				add(pipelineRow, r.Name)
			}
		}
	}
	addSubjects := func(list []Subject) {
		for _, s := range list {
			if s.Type == "User" {
				add(userRow, s.Name)
			}
		}
	}
	switch o := obj.(type) {
	case *CheckConfig:
		namespace = o.Metadata.Namespace
		add(handlerRow, o.Handlers...)
		add(handlerRow, o.OutputMetricHandlers...)
		add(assetRow, o.RuntimeAssets...)
		addPipelines(o.Pipelines)
		if r := o.FallbackPipeline; r != nil {
			add(fallbackRow, r.Name)
		}
		for _, list := range o.CheckHooks {
			add(hookRow, list.Hooks...)
		}
		if c := o.Calendars; c != nil {
			add(calendarRow, c.RunWithin...)
			add(calendarRow, c.NotWithin...)
		}
	case *Handler:
		namespace = o.Metadata.Namespace
		add(filterRow, o.Filters...)
		add(mutatorRow, o.Mutator)
		add(handlerRow, o.Handlers...)
		add(assetRow, o.RuntimeAssets...)
		if e := o.Escalation; e != nil {
			for i := range e.Steps {
				for _, t := range e.Steps[i].Notify {
					add(contactRow, t.Contact)
					add(rotaRow, t.Rota)
					add(handlerRow, t.Handler)
				}
			}
			for _, q := range e.Quiet {
				add(calendarRow, q.Calendars...)
			}
		}
	case *Pipeline:
		namespace = o.Metadata.Namespace
		for _, w := range o.Workflows {
			for _, f := range w.Filters {
				if f != nil {
					add(filterRow, f.Name)
				}
			}
			if w.Mutator != nil {
				add(mutatorRow, w.Mutator.Name)
			}
			if w.Handler != nil && (w.Handler.Type == "Handler" || w.Handler.Type == "") {
				add(handlerRow, w.Handler.Name)
			}
		}
	case *FallbackPipeline:
		namespace = o.Metadata.Namespace
		for _, r := range o.Pipelines {
			if r != nil {
				add(pipelineRow, r.Name)
			}
		}
	case *EventFilter:
		namespace = o.Metadata.Namespace
		add(assetRow, o.RuntimeAssets...)
	case *Mutator:
		namespace = o.Metadata.Namespace
		add(assetRow, o.RuntimeAssets...)
	case *HookConfig:
		namespace = o.Metadata.Namespace
		add(assetRow, o.RuntimeAssets...)
	case *Contact:
		namespace = o.Metadata.Namespace
		add(handlerRow, o.Handlers...)
		add(userRow, o.User)
	case *Rota:
		namespace = o.Metadata.Namespace
		add(contactRow, o.Contacts...)
		for _, override := range o.Overrides {
			add(contactRow, override.Contact)
		}
		add(calendarRow, o.Within...)
	case *Calendar:
		namespace = o.Metadata.Namespace
		add(calendarRow, o.Include...)
		for i := range o.Except {
			add(calendarRow, o.Except[i].Calendar)
		}
	case *Silenced:
		namespace = o.Metadata.Namespace
		add(calendarRow, o.Calendars...)
		add(handlerRow, o.RemindHandlers...)
	case *Entity:
		namespace = o.Metadata.Namespace
		add(handlerRow, o.KeepaliveHandlers...)
		add(handlerRow, o.Deregistration.Handler)
	case *EntityConfig:
		namespace = o.Metadata.Namespace
		add(handlerRow, o.KeepaliveHandlers...)
		add(handlerRow, o.Deregistration.Handler)
	case *APIKey:
		add(userRow, o.Username)
	case *Aggregate:
		namespace = o.Metadata.Namespace
		add(handlerRow, o.Result.Handlers...)
		addPipelines(o.Result.Pipelines)
	case *MetricCheck:
		namespace = o.Metadata.Namespace
		add(handlerRow, o.Result.Handlers...)
		addPipelines(o.Result.Pipelines)
	case *RoleBinding:
		namespace = o.Metadata.Namespace
		if o.RoleRef.Type == "ClusterRole" {
			add(clusterRoleRow, o.RoleRef.Name)
		} else {
			add(roleRow, o.RoleRef.Name)
		}
		addSubjects(o.Subjects)
	case *ClusterRoleBinding:
		add(clusterRoleRow, o.RoleRef.Name)
		addSubjects(o.Subjects)
	}
	return namespace, uses
}
