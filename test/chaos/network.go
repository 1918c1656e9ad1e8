//go:build linux

package main

import (
	"fmt"
	"strings"
)

// The harness and all members are on one bridge. The harness is 198.18.0.1, a member 198.18.0.10 and up, from the range
// for benchmarks (RFC 2544).
const (
	bridge      = "chaos"
	harnessAddr = "198.18.0.1"
	nowhere     = "02:00:00:00:ff:ff" // no interface has this address: frames to it are lost in silence
)

func memberAddr(i int) string { return fmt.Sprintf("198.18.0.%d", 10+i) }
func memberName(i int) string { return fmt.Sprintf("m%d", i) } // also its namespace and its port of the bridge

func ip(args ...string) error { return command("ip", args...) }

// ipAll runs commands, one a line, until one fails.
func ipAll(commands string) error {
	for line := range strings.Lines(commands) {
		if words := strings.Fields(line); len(words) > 0 {
			if err := ip(words...); err != nil {
				return err
			}
		}
	}
	return nil
}

// newNetwork makes the bridge and a namespace for each member. The kernel removes them with the sandbox.
func newNetwork(members int) error {
	if err := ipAll(fmt.Sprintf(`
		link set lo up
		link add %[1]s type bridge
		addr add %[2]s/24 dev %[1]s
		link set %[1]s up
	`, bridge, harnessAddr)); err != nil {
		return err
	}
	for i := range members {
		if err := ipAll(fmt.Sprintf(`
			netns add %[1]s
			link add %[1]s type veth peer name eth0 netns %[1]s
			link set %[1]s master %[2]s
			link set %[1]s up
			-n %[1]s link set lo up
			-n %[1]s addr add %[3]s/24 dev eth0
			-n %[1]s link set eth0 up
		`, memberName(i), bridge, memberAddr(i))); err != nil {
			return err
		}
	}
	return nil
}

// cut takes a member off the bridge: nothing reaches it, nothing leaves it, and no connection is closed.
func cut(member int) error  { return ip("link", "set", memberName(member), "down") }
func mend(member int) error { return ip("link", "set", memberName(member), "up") }

// block loses all packets from one member to another. Packets of the other direction still arrive.
func block(from, to int) error {
	return ipAll(fmt.Sprintf("-n %s neigh replace %s lladdr %s nud permanent dev eth0",
		memberName(from), memberAddr(to), nowhere))
}

func unblock(from, to int) error {
	return ip("-n", memberName(from), "neigh", "del", memberAddr(to), "dev", "eth0")
}
