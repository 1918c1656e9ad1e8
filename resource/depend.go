package resource

import (
	"fmt"
	"strings"
)

// DependsOnAnnotation is the annotation that means the same as depends_on for agents and checks without a definition.
// Its dependencies are separated by commas or blanks.
const DependsOnAnnotation = "lapwing.io/depends-on"

// maxDependencies bounds a list of dependencies.
const maxDependencies = 100

// Dependency is something that a check, or every check of an entity, depends on.
type Dependency struct {
	Entity string // "" means the event's own entity
	Check  string // "" means any check of the entity
}

// ParseDependency reads one of the forms "check", "entity/check" and "entity/".
func ParseDependency(text string) (Dependency, error) {
	entity, check, pair := strings.Cut(text, "/")
	if !pair {
		entity, check = "", text
	}
	d := Dependency{Entity: entity, Check: check}
	if pair {
		if err := checkName(entity); err != nil {
			return d, fmt.Errorf("dependency %q: entity name %w", text, err)
		}
	}
	if !pair || check != "" {
		if err := checkName(check); err != nil {
			return d, fmt.Errorf("dependency %q: check name %w", text, err)
		}
	}
	return d, nil
}

// String returns the form that ParseDependency reads.
func (d Dependency) String() string {
	if d.Entity == "" {
		return d.Check
	}
	return d.Entity + "/" + d.Check
}

// AnnotatedDependencies returns the dependencies in an annotation. Invalid texts are left out: there is no request to
// answer with an error.
func AnnotatedDependencies(annotations map[string]string) []Dependency {
	text := annotations[DependsOnAnnotation]
	if text == "" {
		return nil
	}
	var out []Dependency
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }) {
		if d, err := ParseDependency(word); err == nil && len(out) < maxDependencies {
			out = append(out, d)
		}
	}
	return out
}

func checkDependencies(list []string) error {
	if len(list) > maxDependencies {
		return fmt.Errorf("depends_on has %d entries, it must have %d at most", len(list), maxDependencies)
	}
	for _, text := range list {
		if _, err := ParseDependency(text); err != nil {
			return err
		}
	}
	return nil
}
