package migrate

import (
	"context"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// definition names a definition of the target as lint does.
type definition struct{ role, namespace, name string }

// has notes that the target has a definition from the source.
func (m *migration) has(k *kind, o *object) {
	if k.silent || !m.apply {
		return
	}
	m.rec.mu.Lock()
	defer m.rec.mu.Unlock()
	m.copied[definition{k.Role, o.namespace, o.name}] = true
}

// remarkDoubts adds what the target's lint finds in the copied definitions, such as names that name nothing. A dry run
// cannot ask: the target does not have them yet.
func (m *migration) remarkDoubts(ctx context.Context) {
	if !m.apply {
		return
	}
	const all = "Look at all: lapwing lint --all-namespaces"
	var found []resource.LintFinding
	if err := m.Target.Do(ctx, http.MethodGet, "/api/lapwing/v1/namespaces/-/lint", nil, &found); err != nil {
		m.rec.remark(Noted, "lint", "could not look for names that name nothing: "+err.Error(), all)
		return
	}
	for i := range found {
		f := &found[i]
		if f.Severity != "warning" || !m.copied[definition{f.Resource, f.Namespace, f.Name}] || m.unmet[f.Text] {
			continue
		}
		name := f.Name
		if f.Namespace != "" {
			name = f.Namespace + "/" + name
		}
		m.rec.remark(Doubtful, "lint", "found in what was copied", all, f.Kind+" "+name+": "+f.Text)
	}
}
