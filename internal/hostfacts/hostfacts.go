// Package hostfacts reads the facts about a host for its agent's entity from the operating system.
package hostfacts

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/host"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// timeout bounds each call.
const timeout = 5 * time.Second

// System returns the facts. libC is the result of LibC, which does not change.
func System(ctx context.Context, libC string, networks bool) (*resource.System, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := host.InfoWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("read host facts: %w", err)
	}
	s := &resource.System{
		Hostname:        info.Hostname,
		OS:              info.OS,
		Platform:        info.Platform,
		PlatformFamily:  info.PlatformFamily,
		PlatformVersion: info.PlatformVersion,
		Arch:            runtime.GOARCH,
		ARMVersion:      armVersion(),
		LibCType:        libC,
		VMSystem:        info.VirtualizationSystem,
		VMRole:          info.VirtualizationRole,
	}
	if networks {
		if s.Network.Interfaces, err = interfaces(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func interfaces() ([]resource.NetworkInterface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var out []resource.NetworkInterface
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		known := resource.NetworkInterface{Name: i.Name, MAC: i.HardwareAddr.String()}
		for _, a := range addresses {
			known.Addresses = append(known.Addresses, a.String()) // with the mask's length
		}
		out = append(out, known)
	}
	return out, nil
}

// LibC distinguishes glibc and musl by the output of ldd. It returns "" if there is neither.
func LibC(ctx context.Context) string {
	if runtime.GOOS != "linux" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, _ := exec.CommandContext(ctx, "ldd", "--version").CombinedOutput() // musl's exits with 1
	switch text := bytes.ToLower(text); {
	case bytes.Contains(text, []byte("musl")):
		return "musl"
	case bytes.Contains(text, []byte("glibc")), bytes.Contains(text, []byte("gnu libc")):
		return "glibc"
	}
	return ""
}

// armVersion is the ARM architecture of this program, 0 on others.
func armVersion() int32 {
	build, ok := debug.ReadBuildInfo()
	if runtime.GOARCH != "arm" || !ok {
		return 0
	}
	for _, s := range build.Settings {
		if s.Key == "GOARM" {
			version, _, _ := strings.Cut(s.Value, ",")
			n, _ := strconv.ParseInt(version, 10, 32)
			return int32(n)
		}
	}
	return 0
}
