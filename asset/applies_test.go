package asset

import (
	"slices"
	"testing"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestNamespacesHaveTheirOwnExpressions has assets of two namespaces with the same filter. Each is compiled for its own
// namespace, so that one cannot affect the other.
func TestNamespacesHaveTheirOwnExpressions(t *testing.T) {
	var read []string
	entity := &resource.Entity{EntityClass: "agent", Metadata: resource.ObjectMeta{Name: "e"}}
	applies := About(func() *resource.Entity { return entity }, func(namespace, expression string) (*filter.EntityExpression, error) {
		read = append(read, namespace)
		return filter.CompileEntityHere(expression)
	})
	for _, namespace := range []string{"one", "two", "one"} {
		if ok, err := applies(namespace, []string{`entity.name == "e"`}); !ok || err != nil {
			t.Errorf("in %s it applies: %v, %v", namespace, ok, err)
		}
	}
	if !slices.Equal(read, []string{"one", "two"}) {
		t.Errorf("it was read for %v", read)
	}
}
