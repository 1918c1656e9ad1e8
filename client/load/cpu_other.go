//go:build !unix

package load

import "time"

// processCPU is not known here.
func processCPU() time.Duration { return 0 }
