//go:build !windows

package ctl

const (
	defaultShell  = "bash"
	defaultEditor = "vi"
)
