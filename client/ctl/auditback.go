package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// printThen prints a definition as it was before a change, or after it, in a form that "create -f" takes.
func (s *invocation) printThen(ctx context.Context, e *client.AuditEntry, before bool) error {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.Role == e.Resource && !k.Wrapped })
	if i < 0 || e.Action == "execute" {
		return fmt.Errorf("change %d is not of a definition that 'lapwing create -f' takes: it is %s %s", e.ID, e.Action, e.Resource)
	}
	k := kinds[i]
	s.namespace = e.Namespace
	then, err := s.then(ctx, k, e, before)
	if err != nil {
		return err
	}
	when := "after"
	if before {
		when = "before"
	}
	if then == nil {
		return fmt.Errorf("%s %s did not exist %s change %d", k.word(), e.Name, when, e.ID)
	}
	raw, err := jsonOf(then)
	if err != nil {
		return err
	}
	if lacksSecrets(raw) {
		fmt.Fprintln(s.errOut, "Warning: the log has no secrets: set them in place of "+resource.Redacted+
			", or the present values stay, if there are some")
	}
	if s.format == formatTabular {
		s.format, s.out = formatYAML, rawStream(s.out)
	}
	return s.printOne(k, raw)
}

// lacksSecrets reports whether a definition has a placeholder in place of a secret: as a value, or as that of a variable in
// env_vars.
func lacksSecrets(raw []byte) bool {
	return bytes.Contains(raw, []byte(strconv.Quote(resource.Redacted))) || bytes.Contains(raw, []byte("="+resource.Redacted+`"`))
}

// then returns a definition as it was before or after a change. Unless the change has all of it, all changes from the newest
// back to this one are undone, beginning with what there is. It returns nil if there was no definition.
func (s *invocation) then(ctx context.Context, k *kind, e *client.AuditEntry, before bool) (map[string]any, error) {
	for _, c := range e.Changes {
		if c.Path != "" {
			continue
		}
		whole := c.New // the log has it, also if it has expired since, of which the log has nothing
		if before {
			whole = c.Old
		}
		if len(whole) == 0 {
			return nil, nil
		}
		return objectOf(whole)
	}
	var now map[string]any
	raw, err := client.Get(ctx, s.client, k.Kind, e.Namespace, e.Name)
	switch {
	case errors.Is(err, client.ErrNotFound):
	case err != nil:
		return nil, err
	default:
		if now, err = objectOf(*raw); err != nil {
			return nil, err
		}
	}
	path := "/api/lapwing/v1/audit"
	if e.Namespace != "" {
		path = s.ownPath("audit")
	}
	q := url.Values{"resource": {e.Resource}, "name": {e.Name}, "limit": {"1000"}}
	for {
		list, next, err := auditPage(ctx, s, path, q)
		if err != nil {
			return nil, err
		}
		for i := range list {
			one := &list[i]
			if one.ID < e.ID || one.ID == e.ID && !before {
				return now, nil
			}
			if one.Namespace != e.Namespace || one.Name != e.Name {
				continue
			}
			if now, err = undone(now, one.Changes); err != nil {
				return nil, fmt.Errorf("undo change %d: %w", one.ID, err)
			}
		}
		if next == "" {
			return now, nil
		}
		q.Set("continue", next)
	}
}

// undone takes changes back.
func undone(now map[string]any, changes []client.AuditChange) (map[string]any, error) {
	for _, c := range changes {
		if c.Path == "" {
			if len(c.Old) == 0 {
				now = nil
				continue
			}
			whole, err := objectOf(c.Old)
			if err != nil {
				return nil, err
			}
			now = whole
			continue
		}
		keys := strings.Split(strings.TrimPrefix(c.Path, "/"), "/")
		at := now
		for i, key := range keys {
			keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
			if at == nil {
				return nil, fmt.Errorf("there is no field %s now: the log lacks a change", c.Path)
			}
			if i < len(keys)-1 {
				inner, ok := at[keys[i]].(map[string]any)
				if !ok {
					inner = map[string]any{} // it lost its last field since
					at[keys[i]] = inner
				}
				at = inner
			}
		}
		last := keys[len(keys)-1]
		if len(c.Old) == 0 {
			delete(at, last)
			continue
		}
		var old any
		d := json.NewDecoder(bytes.NewReader(c.Old))
		d.UseNumber()
		if err := d.Decode(&old); err != nil {
			return nil, fmt.Errorf("decode the field %s: %w", c.Path, err)
		}
		at[last] = old // decoded: a later step may go into it
	}
	return now, nil
}

func objectOf(raw json.RawMessage) (out map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("decode a definition: %w", err)
	}
	return out, nil
}
