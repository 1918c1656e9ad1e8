package hostfacts

import (
	"net"
	"runtime"
	"testing"
)

func TestSystem(t *testing.T) {
	t.Parallel()
	facts, err := System(t.Context(), "glibc", true)
	if err != nil {
		t.Fatal(err)
	}
	if facts.Hostname == "" || facts.OS != runtime.GOOS || facts.Arch != runtime.GOARCH || facts.LibCType != "glibc" || len(facts.Network.Interfaces) == 0 {
		t.Errorf("got %+v", facts)
	}
	for _, i := range facts.Network.Interfaces {
		for _, a := range i.Addresses {
			if _, _, err := net.ParseCIDR(a); err != nil {
				t.Errorf("%s: %v", i.Name, err)
			}
		}
	}
	if facts, err = System(t.Context(), "", false); err != nil || len(facts.Network.Interfaces) != 0 {
		t.Errorf("stripped: %+v, %v", facts.Network, err)
	}
	if c := LibC(t.Context()); runtime.GOOS == "linux" && c != "glibc" && c != "musl" {
		t.Errorf("libc %q", c)
	}
}
