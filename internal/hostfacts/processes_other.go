//go:build !linux

package hostfacts

import (
	"context"
	"errors"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// DiscoversProcesses says whether Processes works on this system.
const DiscoversProcesses = false

// Processes fails: only Linux lists its processes with all that an entity says of them.
func Processes(context.Context) (some []resource.Process, total int, err error) {
	return nil, 0, errors.ErrUnsupported
}
