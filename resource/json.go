package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// This file has the JSON shapes that struct tags alone cannot give. The types below have the fields of the resource
// without its methods. So encoding/json writes a whole event in one pass.
type (
	checkJSON       Check
	checkConfigJSON CheckConfig
	entityJSON      Entity
)

// eventJSON is the JSON of an Event. Its keys have the same order as Sensu's.
type eventJSON struct {
	Check     *checkJSON          `json:"check,omitempty"`
	Entity    *entityJSON         `json:"entity,omitempty"`
	ID        *string             `json:"id"`
	Metadata  ObjectMeta          `json:"metadata"`
	Metrics   *Metrics            `json:"metrics,omitempty"`
	Pipelines []ResourceReference `json:"pipelines"`
	Sequence  int64               `json:"sequence"`
	Timestamp int64               `json:"timestamp,omitempty"`
}

// MarshalJSON writes the id as text, or null, and the entity redacted.
func (e Event) MarshalJSON() ([]byte, error) {
	out, err := e.shape()
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

func (e *Event) shape() (*eventJSON, error) {
	out := &eventJSON{
		Metadata:  e.Metadata,
		Metrics:   e.Metrics,
		Pipelines: e.Pipelines,
		Sequence:  e.Sequence,
		Timestamp: e.Timestamp,
	}
	if e.Check != nil {
		out.Check = e.Check.shape()
	}
	if e.Entity != nil {
		out.Entity = e.Entity.shape()
	}
	if len(e.ID) > 0 {
		id, err := uuid.FromBytes(e.ID)
		if err != nil {
			return nil, fmt.Errorf("encode event id: %w", err)
		}
		text := id.String()
		out.ID = &text
	}
	return out, nil
}

// UnmarshalJSON takes an id that is missing, null or "" for no id.
func (e *Event) UnmarshalJSON(b []byte) error {
	in := eventJSON{
		Check:     (*checkJSON)(e.Check),
		Entity:    (*entityJSON)(e.Entity),
		Metadata:  e.Metadata,
		Metrics:   e.Metrics,
		Pipelines: e.Pipelines,
		Sequence:  e.Sequence,
		Timestamp: e.Timestamp,
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	id := e.ID
	if in.ID != nil {
		id = nil
		if *in.ID != "" {
			parsed, err := uuid.Parse(*in.ID)
			if err != nil {
				return fmt.Errorf("invalid event id: %w", err)
			}
			id = parsed[:]
		}
	}
	*e = Event{
		Timestamp: in.Timestamp,
		Entity:    (*Entity)(in.Entity),
		Check:     (*Check)(in.Check),
		Metrics:   in.Metrics,
		Metadata:  in.Metadata,
		ID:        id,
		Sequence:  in.Sequence,
		Pipelines: in.Pipelines,
	}
	return nil
}

// MarshalJSON writes empty lists where clients reject null, and placeholders for the values of secret environment
// variables. Protobuf keeps the values.
func (c Check) MarshalJSON() ([]byte, error) { return json.Marshal(c.shape()) }

func (c *Check) shape() *checkJSON {
	out := checkJSON(*c)
	out.Handlers = notNil(out.Handlers)
	out.Subscriptions = notNil(out.Subscriptions)
	out.Pipelines = notNil(out.Pipelines)
	out.EnvVars = RedactVariables(out.EnvVars)
	return &out
}

// MarshalJSON writes empty lists where clients reject null, and completes references to pipelines.
func (c CheckConfig) MarshalJSON() ([]byte, error) {
	out := checkConfigJSON(c)
	out.Handlers = notNil(out.Handlers)
	out.Subscriptions = notNil(out.Subscriptions)
	out.Pipelines = notNil(slices.Clone(out.Pipelines))
	for i := range out.Pipelines {
		if p := &out.Pipelines[i]; p.Type == "" {
			p.Type = pipelineType
		}
		if p := &out.Pipelines[i]; p.APIVersion == "" {
			p.APIVersion = pipelineAPIVersion
		}
	}
	return json.Marshal((*checkConfigJSON)(&out))
}

// The API version and the type of a reference to a pipeline, also if it names neither.
const (
	pipelineType       = "Pipeline"
	pipelineAPIVersion = "core/v2"
)

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// MarshalJSON writes the hooks under their type.
func (h HookList) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string][]string{h.Type: h.Hooks})
}

// UnmarshalJSON reads an object with the type as its only key.
func (h *HookList) UnmarshalJSON(b []byte) error {
	var lists map[string][]string
	if err := json.Unmarshal(b, &lists); err != nil {
		return err
	}
	if len(lists) > 1 {
		return errors.New("check hooks: one type per object")
	}
	for typ, hooks := range lists {
		*h = HookList{Type: typ, Hooks: hooks}
	}
	return nil
}

// Redacted replaces secret values in JSON, for example of labels and annotations.
const Redacted = "REDACTED"

// defaultRedact are the redacted keys of an entity that names none, as redactKey returns them.
var defaultRedact = []string{
	"password", "passwd", "pass", "apikey", "apitoken", "accesskey", "secretkey", "privatekey", "secret",
}

// MarshalJSON writes e with the values of secret labels and annotations redacted. Protobuf keeps them.
func (e Entity) MarshalJSON() ([]byte, error) { return json.Marshal(e.shape()) }

func (e *Entity) shape() *entityJSON {
	out := entityJSON(*e)
	if len(e.Metadata.Labels) == 0 && len(e.Metadata.Annotations) == 0 {
		return &out
	}
	secret := redactedKeys(e.Redact)
	out.Metadata.Labels = redact(e.Metadata.Labels, secret)
	out.Metadata.Annotations = redact(e.Metadata.Annotations, secret)
	return &out
}

// redactedKeys returns the redacted keys of an entity, as redactKey returns them. own are those that it names.
func redactedKeys(own []string) []string {
	if len(own) == 0 {
		return defaultRedact
	}
	keys := make([]string, len(own))
	for i, key := range own {
		keys[i] = redactKey(key)
	}
	return keys
}

// redact returns m, or a changed copy if it has keys to redact.
func redact(m map[string]string, secret []string) map[string]string {
	var out map[string]string
	for key := range m {
		if !slices.Contains(secret, redactKey(key)) {
			continue
		}
		if out == nil {
			out = maps.Clone(m)
		}
		out[key] = Redacted
	}
	if out == nil {
		return m
	}
	return out
}

// redactKey makes different spellings of a key equal: API-Key, api_key and apikey. It drops digits too, but only from
// keys with other characters than letters and digits.
func redactKey(key string) string {
	key = strings.ToLower(key)
	plain := func(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }
	if strings.IndexFunc(key, func(r rune) bool { return !plain(r) }) < 0 {
		return key
	}
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			return r
		}
		return -1
	}, key)
}

// UnmarshalJSON also splits entries like "get,list".
func (r *Rule) UnmarshalJSON(b []byte) error {
	type plain Rule
	if err := json.Unmarshal(b, (*plain)(r)); err != nil {
		return err
	}
	r.Verbs = splitAll(r.Verbs)
	r.Resources = splitAll(r.Resources)
	r.ResourceNames = splitAll(r.ResourceNames)
	return nil
}

func splitAll(list []string) []string {
	if !slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, ",") }) {
		return list
	}
	var out []string
	for _, s := range list {
		out = append(out, strings.Split(s, ",")...)
	}
	return out
}

// UnmarshalJSON also accepts types in lower case.
func (r *RoleRef) UnmarshalJSON(b []byte) error {
	type plain RoleRef
	if err := json.Unmarshal(b, (*plain)(r)); err != nil {
		return err
	}
	r.Type = title(r.Type)
	return nil
}

// UnmarshalJSON also accepts types in lower case.
func (s *Subject) UnmarshalJSON(b []byte) error {
	type plain Subject
	if err := json.Unmarshal(b, (*plain)(s)); err != nil {
		return err
	}
	s.Type = title(s.Type)
	return nil
}

func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
