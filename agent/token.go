package agent

import (
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/substitute"
)

// replaceTokens returns a copy of in with its tokens replaced by values of entity.
func replaceTokens[T any](in *T, entity *resource.Entity) (*T, error) {
	data, err := substitute.Entity(entity)
	if err != nil {
		return nil, err
	}
	return substitute.Object(in, data)
}
