//go:build !linux

package proc

// Cgroups are the control groups of commands. Only Linux has them.
type Cgroups struct{}

// OpenCgroups always fails.
func OpenCgroups(string) (*Cgroups, error) { return nil, errNoCgroups }

// CanLimit reports whether Limits can be set.
func (*Cgroups) CanLimit() bool { return false }

// Close does nothing.
func (*Cgroups) Close() error { return nil }
