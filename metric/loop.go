package metric

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/carbon"
	"github.com/lapwing-monitoring/lapwing/metric/relay"
)

// lookupTimeout bounds the search for the addresses of a destination's host.
const lookupTimeout = 2 * time.Second

// refuseOwnAddress returns an error if a destination of the relay is a listener of this server: each point would come
// back for ever. A host whose addresses cannot be found passes.
func (s *Server) refuseOwnAddress() error {
	udp := s.opts.Relay.Protocol == relay.UDP.String()
	for _, text := range s.opts.Relay.Destinations {
		d, _, err := parseDestination(text)
		if err != nil {
			return fmt.Errorf("relay destination: %w", err)
		}
		for _, l := range s.listeners {
			at, err := netip.ParseAddrPort(l.Addr().String())
			if err != nil || int(at.Port()) != d.Port || udp != (l.kind == string(carbon.LineUDP)) {
				continue
			}
			own, err := reaches(s.life, d.Host, at.Addr())
			if err != nil {
				s.opts.Logger.Warn("cannot check whether a destination of the relay is this server", "destination", text, "err",
					err)
			} else if own {
				return fmt.Errorf("relay destination %s is the %s listener of this server: points would come back for ever",
					text, l.kind)
			}
		}
	}
	return nil
}

// reaches reports whether a connection to host, from here, arrives at a listener that is bound to an address.
func reaches(ctx context.Context, host string, bound netip.Addr) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return false, fmt.Errorf("find the addresses of %s: %w", host, err)
	}
	var here []net.Addr
	if bound.IsUnspecified() {
		if here, err = net.InterfaceAddrs(); err != nil {
			return false, fmt.Errorf("list the addresses of this host: %w", err)
		}
	}
	for _, to := range found {
		to = to.Unmap().WithZone("")
		// The system connects to a loopback address for an unspecified one.
		own := to == bound.Unmap().WithZone("") || to.IsUnspecified() && bound.IsLoopback() ||
			bound.IsUnspecified() && (to.IsLoopback() || to.IsUnspecified())
		for _, a := range here {
			prefix, err := netip.ParsePrefix(a.String())
			own = own || err == nil && prefix.Addr().Unmap().WithZone("") == to
		}
		if own {
			return true, nil
		}
	}
	return false, nil
}
