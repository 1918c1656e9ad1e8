package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// creating is how many objects are created at the same time, unless the scenario sets create_parallel. Sensu's own
	// test creates its checks four at a time, so that the backend is not surprised by all of them.
	creating = 4
	removing = 16
)

const coreVersion = "core/v2"

// kind is a kind of object that a scenario may bring as a Resource.
type kind struct {
	needs string // the feature that a backend with this kind has
	// wrapped kinds carry their type beside their spec, and are below another prefix, under this plural name.
	wrapped bool
	plural  string
}

// kinds are by api_version.Type.
var kinds = map[string]kind{
	"core/v2.Asset":                {},
	"core/v2.EventFilter":          {},
	"core/v2.Handler":              {},
	"core/v2.HookConfig":           {},
	"core/v2.Mutator":              {},
	"core/v2.Pipeline":             {needs: NeedsPipelines},
	"core/v2.Silenced":             {},
	"pipeline/v1.TCPStreamHandler": {plural: "tcp-stream-handlers", needs: NeedsTCPStreamHandler, wrapped: true},
}

// object is something that Setup creates.
type object struct {
	kind, name string
	path       string
	body       any
}

// step is objects of a kind, which may be created in any order.
type step struct {
	kind    string
	objects []object
}

// head is the common part of any object of the API.
type head struct {
	Metadata resource.ObjectMeta `json:"metadata"`
}

// Setup creates the scenario's objects, but not those that SetupLate creates. It refuses to replace an object that no load
// run has made. If it fails, Cleanup removes what it has created until then.
func (s *Scenario) Setup(ctx context.Context, api *client.Client) error {
	return s.setUp(ctx, api, false)
}

// SetupLate creates the objects that the scenario wants when the agents are connected. It is like Setup.
func (s *Scenario) SetupLate(ctx context.Context, api *client.Client) error {
	return s.setUp(ctx, api, true)
}

func (s *Scenario) setUp(ctx context.Context, api *client.Client, late bool) error {
	for _, step := range s.steps() {
		if late != (s.Load.ChecksLast && step.kind == "checks") {
			continue
		}
		err := parallel(ctx, cmp.Or(s.Load.CreateParallel, creating), step.objects, func(ctx context.Context, o object) error { return s.create(ctx, api, o) })
		if err != nil {
			return fmt.Errorf("set up %s: %w", s.Name, err)
		}
		s.logger().Info("created for the load run", "kind", step.kind, "count", len(step.objects), "names", between(step.objects))
	}
	return nil
}

func (s *Scenario) create(ctx context.Context, api *client.Client, o object) error {
	var there head
	switch err := api.Do(ctx, http.MethodGet, o.path, nil, &there); {
	case errors.Is(err, client.ErrNotFound):
	case err != nil:
		return fmt.Errorf("look for %s %s: %w", o.kind, o.name, err)
	case there.Metadata.Labels[Label] == "":
		return fmt.Errorf("%s %s is there already, and was not made by a load run", o.kind, o.name)
	}
	// An interrupted request may have created something, and Cleanup might look for it too early.
	if err := api.Do(context.WithoutCancel(ctx), http.MethodPut, o.path, o.body, nil); err != nil {
		return fmt.Errorf("create %s %s: %w", o.kind, o.name, err)
	}
	s.logger().Debug("created for the load run", "kind", o.kind, "name", o.name)
	return nil
}

// Cleanup removes what Setup has created in this process or an earlier one, and the entities of the run's agents with
// their events, by the label with the run's name. The agents must be disconnected, or they come back. If an object
// cannot be removed, the others still are.
func (s *Scenario) Cleanup(ctx context.Context, api *client.Client) error {
	var errs []error
	steps := s.steps()
	for _, step := range slices.Backward(steps) {
		var mu sync.Mutex // guards removed and failures
		var removed []object
		var failures []error
		err := parallel(ctx, removing, step.objects, func(ctx context.Context, o object) error {
			gone, err := s.remove(ctx, api, o)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, err)
			} else if gone {
				removed = append(removed, o)
			}
			return nil
		})
		errs = append(errs, append(failures, err)...)
		s.logger().Info("removed after the load run", "kind", step.kind, "count", len(removed))
	}
	errs = append(errs, s.removeEntities(ctx, api))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up %s: %w", s.Name, err)
	}
	return nil
}

// remove removes an object if it is this run's.
func (s *Scenario) remove(ctx context.Context, api *client.Client, o object) (bool, error) {
	var there head
	err := api.Do(ctx, http.MethodGet, o.path, nil, &there)
	if errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s %s: %w", o.kind, o.name, err)
	}
	if there.Metadata.Labels[Label] != s.Run {
		s.logger().Warn("left in place: it is not of this load run", "kind", o.kind, "name", o.name)
		return false, nil
	}
	if err := api.Do(ctx, http.MethodDelete, o.path, nil, nil); err != nil && !errors.Is(err, client.ErrNotFound) {
		return false, fmt.Errorf("remove %s %s: %w", o.kind, o.name, err)
	}
	return true, nil
}

// removeEntities removes the entities of the run's agents. With an entity, a backend forgets its events.
func (s *Scenario) removeEntities(ctx context.Context, api *client.Client) error {
	kind := client.Kind[head](client.Entities)
	var ours []string
	for e, err := range client.All(ctx, api, kind, s.Namespace, client.ListOptions{ChunkSize: 1000}) {
		if err != nil {
			return err
		}
		if e.Metadata.Labels[Label] == s.Run {
			ours = append(ours, e.Metadata.Name)
		}
	}
	err := parallel(ctx, removing, ours, func(ctx context.Context, name string) error {
		if err := client.Delete(ctx, api, kind, s.Namespace, name); !errors.Is(err, client.ErrNotFound) {
			return err
		}
		return nil
	})
	if err == nil {
		s.logger().Info("removed after the load run", "kind", "agents", "count", len(ours))
	}
	return err
}

// parallel calls f for each item, several at the same time. After a failure it starts no more calls, but waits for the
// running ones: their results are known when it returns.
func parallel[T any](ctx context.Context, workers int, items []T, f func(context.Context, T) error) error {
	var (
		mu      sync.Mutex // guards failure
		failure error
		wg      sync.WaitGroup
	)
	failed := make(chan struct{})
	next := make(chan T)
	for range min(workers, len(items)) {
		wg.Go(func() {
			for item := range next {
				err := f(ctx, item)
				if err == nil {
					continue
				}
				mu.Lock()
				if failure == nil {
					failure = err
					close(failed)
				}
				mu.Unlock()
			}
		})
	}
feed:
	for _, item := range items {
		select {
		case <-failed:
			break feed
		case <-ctx.Done():
			break feed
		case next <- item:
		}
	}
	close(next)
	wg.Wait()
	if failure == nil {
		return context.Cause(ctx)
	}
	return failure
}

// between names many objects by the first and the last.
func between(objects []object) string {
	if len(objects) == 1 {
		return objects[0].name
	}
	return objects[0].name + " … " + objects[len(objects)-1].name
}

// steps returns what Setup creates, in order: objects come before those that refer to them.
func (s *Scenario) steps() (steps []step) {
	add := func(kind string, objects []object) {
		if len(objects) > 0 {
			steps = append(steps, step{kind, objects})
		}
	}
	for i := range s.Resources { // one by one: they may refer to each other, in the order of the file
		add(s.Resources[i].Type, []object{s.Resources[i].object(s)})
	}
	var objects []object
	for i := range s.Handlers {
		h := s.Handlers[i].handler(s)
		objects = append(objects, object{"handler", h.Metadata.Name, client.Handlers.Path(s.Namespace, h.Metadata.Name), h})
	}
	add("handlers", objects)
	objects = nil
	for i := range s.Entities {
		for n := 1; n <= s.Entities[i].Count; n++ {
			e := s.Entities[i].entity(s, n)
			objects = append(objects, object{"entity", e.Metadata.Name, client.Entities.Path(s.Namespace, e.Metadata.Name), e})
		}
	}
	add("entities", objects)
	objects = nil
	for i := range s.Checks {
		for n := 1; n <= s.Checks[i].Count; n++ {
			c := s.Checks[i].config(s, n)
			objects = append(objects, object{"check", c.Metadata.Name, client.Checks.Path(s.Namespace, c.Metadata.Name), c})
		}
	}
	add("checks", objects)
	return steps
}

// meta is the metadata of an object, labelled.
func (s *Scenario) meta(name string, labels map[string]string) resource.ObjectMeta {
	all := map[string]string{}
	maps.Copy(all, labels)
	all[Label] = s.Run
	return resource.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: all}
}

func seconds(d time.Duration) uint32 { return uint32(d / time.Second) }

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func (c *Checks) config(s *Scenario, n int) *resource.CheckConfig {
	config := &resource.CheckConfig{
		Metadata: s.meta(numbered(c.Name, n), nil), Command: c.Command, Interval: seconds(c.Interval), Cron: c.Cron, Publish: true,
		Subscriptions: orEmpty(c.Subscriptions), Handlers: orEmpty(c.Handlers), RoundRobin: c.RoundRobin, ProxyEntityName: c.proxyEntity(s, n),
		TTL: int64(seconds(c.TTL)), Timeout: seconds(c.Timeout), LowFlapThreshold: c.LowFlap, HighFlapThreshold: c.HighFlap,
		RuntimeAssets: []string{}, CheckHooks: []resource.HookList{}, EnvVars: []string{}, OutputMetricHandlers: []string{}, Secrets: []resource.Secret{},
	}
	for _, name := range c.Pipelines {
		config.Pipelines = append(config.Pipelines, resource.ResourceReference{Name: name, Type: "Pipeline", APIVersion: coreVersion})
	}
	if p := c.ProxyRequests; p != nil {
		config.ProxyRequests = &resource.ProxyRequests{
			EntityAttributes: []string{"entity.entity_class == '" + classProxy + "'"}, Splay: p.Splay, SplayCoverage: p.Coverage,
		}
		for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
			config.ProxyRequests.EntityAttributes = append(config.ProxyRequests.EntityAttributes, "entity.labels."+k+" == '"+p.Labels[k]+"'")
		}
	}
	if c.Metrics != nil {
		config.OutputMetricFormat, config.OutputMetricHandlers = c.Metrics.Format, orEmpty(c.Metrics.Handlers)
	}
	if c.RequestBytes > 0 {
		c.fill(config)
	}
	return config
}

// proxyEntity is the proxy entity of the check with number n.
func (c *Checks) proxyEntity(s *Scenario, n int) string {
	for _, e := range s.Entities {
		if e.Name == c.ProxyEntity {
			return numbered(e.Name, (n-1)%max(1, e.Count)+1)
		}
	}
	return c.ProxyEntity
}

// filling is the annotation that fills a check's requests up.
const filling = "filling"

// fill fills a check's definition up so that a request has the length that the scenario wants.
func (c *Checks) fill(config *resource.CheckConfig) {
	annotations := map[string]string{}
	config.Metadata.Annotations = annotations
	missing := func() int {
		request := resource.CheckRequest{Config: config, Issued: 1_800_000_000}
		return c.RequestBytes - len(request.AppendProto(nil))
	}
	if c.RoundRobin {
		annotations[resource.TurnAnnotation] = "1800000000 " + c.Subscriptions[0] + " 1800000000000000"
	}
	if n := missing(); n > 0 {
		annotations[filling] = strings.Repeat("x", n) // too long by its own frame
		annotations[filling] = strings.Repeat("x", max(0, n+missing()))
	}
	delete(annotations, resource.TurnAnnotation)
}

func (h *Handler) handler(s *Scenario) *resource.Handler {
	out := &resource.Handler{
		Metadata: s.meta(h.Name, nil), Type: h.Type, Command: h.Command, Timeout: seconds(h.Timeout), Mutator: h.Mutator,
		Handlers: orEmpty(h.Handlers), Filters: orEmpty(h.Filters), EnvVars: []string{}, RuntimeAssets: []string{}, Secrets: []resource.Secret{},
	}
	if h.Host != "" || h.Port != 0 {
		out.Socket = &resource.HandlerSocket{Host: h.Host, Port: uint32(h.Port)}
	}
	if h.URL != "" {
		out.Webhook = &resource.HandlerWebhook{URL: h.URL}
	}
	return out
}

func (e *Entities) entity(s *Scenario, n int) *resource.Entity {
	return &resource.Entity{
		Metadata: s.meta(numbered(e.Name, n), e.Labels), EntityClass: e.Class, Subscriptions: orEmpty(e.Subscriptions),
	}
}

func (r *Resource) object(s *Scenario) object {
	k := kinds[r.APIVersion+"."+r.Type]
	name := r.Metadata.Name
	meta := s.meta(name, r.Metadata.Labels)
	meta.Annotations = r.Metadata.Annotations
	o := object{kind: r.Type, name: name}
	if k.wrapped {
		o.path = "/api/enterprise/" + r.APIVersion + "/namespaces/" + url.PathEscape(s.Namespace) + "/" + k.plural + "/" + url.PathEscape(name)
		o.body = map[string]any{"type": r.Type, "api_version": r.APIVersion, "metadata": meta, "spec": r.Spec}
		return o
	}
	row, _ := resource.FindKind(r.APIVersion, r.Type)
	body := map[string]any{}
	maps.Copy(body, r.Spec)
	body["metadata"] = meta
	o.path, o.body = client.Kind[head]{Kind: row}.Path(s.Namespace, name), body
	return o
}
