package api

import (
	"net/http"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// entityConfigs serves the definitions of entities in the form of files. Sensu's clients write it so, and Sensu's
// open-source edition answers them 404.
type entityConfigs struct {
	*entities
}

// entityConfigRow is the kind of the documents.
var entityConfigRow = resource.KindFor[resource.EntityConfig]()

// wrappedEntityConfig is an EntityConfig as in files.
type wrappedEntityConfig struct {
	Type       string               `json:"type"`
	APIVersion string               `json:"api_version"`
	Metadata   *resource.ObjectMeta `json:"metadata"`
	Spec       *entityConfigSpec    `json:"spec"`
}

// entityConfigSpec is an EntityConfig without its metadata, which is beside it. Files may have metadata here too.
type entityConfigSpec struct {
	resource.EntityConfig
	Metadata *resource.ObjectMeta `json:"metadata,omitempty"`
}

func (a *API) serveEntityConfigs() {
	c := &entityConfigs{a.newEntities()}
	list := access{resource: c.String(), labels: true}
	paths, item := entityConfigRow.Prefix(), "namespaces/{namespace}/"+entityConfigRow.Plural
	a.route(paths+entityConfigRow.Plural, list, methods{http.MethodGet: c.list})
	a.route(paths+item, list, methods{http.MethodGet: c.list, http.MethodPost: c.create})
	a.route(paths+item+"/{name}", access{resource: c.String(), name: namePath, labels: true}, methods{
		http.MethodGet: c.get, http.MethodPut: c.put, http.MethodPatch: c.patch, http.MethodDelete: c.delete,
	})
}

func wrapEntityConfig(cfg *resource.EntityConfig) *wrappedEntityConfig {
	shown := cfg.Redacted()
	return &wrappedEntityConfig{entityConfigRow.Type, entityConfigRow.Group, &shown.Metadata, &entityConfigSpec{EntityConfig: *shown}}
}

// unwrap returns the definition in a document. The outer metadata wins.
func (d *wrappedEntityConfig) unwrap() (*resource.EntityConfig, error) {
	if d.Type != "" && d.Type != entityConfigRow.Type || d.APIVersion != "" && d.APIVersion != entityConfigRow.Group {
		return nil, invalid("the resource is a %s.%s, want %s.%s", d.APIVersion, d.Type, entityConfigRow.Group, entityConfigRow.Type)
	}
	if d.Spec == nil {
		return nil, invalid("the resource has no spec")
	}
	cfg := d.Spec.EntityConfig
	if d.Spec.Metadata != nil {
		cfg.Metadata = *d.Spec.Metadata
	}
	if d.Metadata != nil {
		cfg.Metadata = *d.Metadata
	}
	return &cfg, nil
}

func (c *entityConfigs) list(w *response, r *request) error {
	p := pageOf(r, (*resource.EntityConfig)(nil))
	if p.err != nil {
		return p.err
	}
	items := c.objects(r, p)
	if p.selector != nil { // it selects by entities, not documents
		items = selected(p.selector, items, c.show)
		p.selector = nil
	}
	return writeList(w, p, items, func(cfg *resource.EntityConfig) any { return wrapEntityConfig(cfg) }, c.token)
}

func (c *entityConfigs) get(w *response, r *request) error {
	cfg, err := c.find(r.act)
	if err != nil {
		return err
	}
	return w.tagged(r, wrapEntityConfig(cfg))
}

// read decodes the definition in the body of a POST or PUT.
func (c *entityConfigs) read(w *response, r *request) (*resource.EntityConfig, error) {
	var doc wrappedEntityConfig
	if err := c.api.decode(w, r, &doc); err != nil {
		return nil, err
	}
	return doc.unwrap()
}

// admit checks the definition of a POST or PUT.
func (c *entityConfigs) admit(t *act, cfg *resource.EntityConfig) error {
	m := &cfg.Metadata
	if m.Namespace == "" {
		m.Namespace = t.namespace
	}
	if m.Namespace != t.namespace {
		return namespaceMismatch(m.Namespace, t.namespace)
	}
	if t.method == http.MethodPut && m.Name != t.name {
		return nameMismatch(m.Name, t.name)
	}
	m.CreatedBy = ""
	if err := cfg.Validate(); err != nil {
		return refused("", err)
	}
	if err := c.api.needNamespace(t.namespace); err != nil {
		return err
	}
	if !c.mine(t, cfg) {
		return c.outOfReach(t, cfg)
	}
	return nil
}

func (c *entityConfigs) create(w *response, r *request) error {
	cfg, err := c.read(w, r)
	if err != nil {
		return err
	}
	if err := c.admit(r.act, cfg); err != nil {
		return err
	}
	cfg.Subscriptions = resource.AddEntitySubscription(cfg.Subscriptions, cfg.Metadata.Name)
	if err := config.Create(r.Context(), c.api.opts.Config, c.Kind, cfg); err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

func (c *entityConfigs) put(w *response, r *request) error {
	cfg, err := c.read(w, r)
	if err != nil {
		return err
	}
	if err := c.admit(r.act, cfg); err != nil {
		return err
	}
	if _, err := c.upsert(r.Context(), r.act, resource.JoinEntity(cfg, nil)); err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

// patch applies a patch to the document.
func (c *entityConfigs) patch(w *response, r *request) error {
	patch, err := c.api.patch(w, r)
	if err != nil {
		return err
	}
	cfg, err := c.change(r.Context(), r.act, func(old *resource.EntityConfig) (*resource.EntityConfig, error) {
		doc, err := merged(wrapEntityConfig(old), patch)
		if err != nil {
			return nil, err
		}
		cfg, err := doc.unwrap()
		if err != nil {
			return nil, err
		}
		return c.successor(old, cfg)
	})
	if err != nil {
		return err
	}
	return w.tagged(r, wrapEntityConfig(cfg))
}
