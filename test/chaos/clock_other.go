//go:build linux && !amd64

package main

import (
	"errors"
	"time"
)

// skewable reports whether clocks can be made wrong on this kind of processor.
const skewable = false

// clock changes the time that a process reads.
type clock struct{}

func newClock(int) (*clock, error) { return nil, errors.New("clocks can be made wrong on amd64 only") }

func (c *clock) set(time.Duration) error { return nil }
