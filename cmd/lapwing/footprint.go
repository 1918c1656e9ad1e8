package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"
)

// startOver is when an agent has surely done all that it does once.
const startOver = 20 * time.Second

// keepSmall makes an agent's memory small: it is a guest on its host. The garbage collector runs twice as often as it
// would, which costs little with a heap of some MiB. GOGC in the environment wins.
func keepSmall(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	go func() {
		select {
		case <-time.After(startOver):
			debug.FreeOSMemory()
		case <-ctx.Done():
		}
	}()
}
