//go:build !windows

package main

const (
	defaultAgentFile  = "/etc/lapwing/agent.yml"
	sensuAgentFile    = "/etc/sensu/agent.yml"
	defaultAgentCache = "/var/cache/lapwing/agent"
)
