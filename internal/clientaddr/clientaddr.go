// Package clientaddr finds the address of a client behind proxies. Only proxies that the operator has named are
// trusted. The servers wrap their handlers once, and all later code (limits, audit log, log) reads
// http.Request.RemoteAddr.
package clientaddr

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the networks of trusted proxies. The zero value trusts none.
type Proxies struct{ networks []netip.Prefix }

// Parse reads networks, such as 10.0.0.0/8, and single addresses.
func Parse(texts []string) (Proxies, error) {
	var p Proxies
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, addressErr := netip.ParseAddr(text)
			if addressErr != nil {
				return Proxies{}, fmt.Errorf("trusted proxy %q is neither an address nor a network such as 10.0.0.0/8", text)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		p.networks = append(p.networks, network.Masked())
	}
	return p, nil
}

// Trusts reports whether an address is a proxy's.
func (p Proxies) Trusts(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	for _, n := range p.networks {
		if n.Contains(address) {
			return true
		}
	}
	return false
}

// Handler sets RemoteAddr of requests from trusted proxies to the address of the client, with port 0 if no proxy
// reports it.
func (p Proxies) Handler(h http.Handler) http.Handler {
	if len(p.networks) == 0 {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client, ok := p.client(r); ok {
			changed := *r // shallow, as in Request.WithContext: the headers are shared
			changed.RemoteAddr = client.String()
			r = &changed
		}
		h.ServeHTTP(w, r)
	})
}

// client is the address behind the proxies: the last one in the header that is not a trusted proxy's. Clients can send
// any addresses before it. A proxy writes one of the two headers, so if both are there and differ, the client made one
// up and neither is trusted.
func (p Proxies) client(r *http.Request) (netip.AddrPort, bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.Trusts(peer.Addr()) {
		return netip.AddrPort{}, false
	}
	old, oldOK := p.last(strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ","))
	forwarded, forwardedOK := p.last(forwardedFor(r.Header.Values("Forwarded")))
	switch {
	case oldOK && forwardedOK && old.Addr() != forwarded.Addr():
		return netip.AddrPort{}, false
	case oldOK:
		return old, true
	}
	return forwarded, forwardedOK
}

// last returns the last address that is not a trusted proxy's. If anything else precedes the proxies, it returns none.
func (p Proxies) last(hops []string) (netip.AddrPort, bool) {
	for i := len(hops) - 1; i >= 0; i-- {
		hop, ok := parse(hops[i])
		if !ok {
			return netip.AddrPort{}, false
		}
		if !p.Trusts(hop.Addr()) {
			return hop, true
		}
	}
	return netip.AddrPort{}, false
}

// forwardedFor returns the for= parameters of a Forwarded header (RFC 7239), in their order.
func forwardedFor(values []string) (hops []string) {
	for _, value := range values {
		for hop := range strings.SplitSeq(value, ",") {
			address := ""
			for pair := range strings.SplitSeq(hop, ";") {
				name, v, _ := strings.Cut(strings.TrimSpace(pair), "=")
				if strings.EqualFold(name, "for") {
					address = strings.Trim(v, `"`)
				}
			}
			hops = append(hops, address)
		}
	}
	return hops
}

// parse reads an address with or without a port.
func parse(hop string) (netip.AddrPort, bool) {
	hop = strings.TrimSpace(hop)
	if withPort, err := netip.ParseAddrPort(hop); err == nil {
		return netip.AddrPortFrom(withPort.Addr().Unmap().WithZone(""), withPort.Port()), true
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(hop, "["), "]"))
	return netip.AddrPortFrom(address.Unmap().WithZone(""), 0), err == nil
}

// Host returns the address in a RemoteAddr, without the port.
func Host(remoteAddr string) string {
	host, _, err := net.SplitHostPort(remoteAddr)
	if err != nil {
		return remoteAddr
	}
	return host
}
