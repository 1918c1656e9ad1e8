package backend

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
)

// Cluster are the settings of a backend in a cluster. Without Peers and NATS it is alone.
type Cluster struct {
	// Name is this member's, for people. Default the host's.
	Name string
	// ListenAddress takes the connections of the other members. Required with Peers.
	ListenAddress string
	// Peers are the ListenAddresses of the members; this one may be among them. A DNS name may have several addresses.
	Peers []string
	// Size is how many members there are. 0 counts Peers, and this one if it is not among them.
	Size int
	// AdvertiseHost is the host name or address by which agents and clients reach this member. Default the host of
	// ListenAddress, and with NATS this host's name.
	AdvertiseHost string
	// CertFile and KeyFile are this member's certificate and key, TrustedCAFile the authorities of all members'
	// certificates. Without them all addresses must be loopback addresses.
	CertFile, KeyFile, TrustedCAFile string
	// NATS are servers that are run beside lapwing. All backends with the same ones are one cluster, without Peers.
	NATS NATS
}

// on reports whether the backend is a member of a cluster.
func (c *Cluster) on() bool { return len(c.Peers) > 0 || c.NATS.on() }

func (c *Cluster) check(bad func(flag, format string, args ...any)) {
	if strings.ContainsAny(c.Name, " \t\r\n.*>/") {
		bad("name", "%q has a space or one of . * > /", c.Name)
	}
	if len(c.Name) > maxName || !utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name, unicode.IsControl) {
		bad("name", "%q is no text of up to %d bytes without control characters", c.Name, maxName)
	}
	if strings.HasPrefix(c.Name, broker.UnknownPrefix) {
		bad("name", "%q begins with %s, as the status calls members whose names are not known", c.Name, broker.UnknownPrefix)
	}
	c.NATS.check(bad)
	if c.NATS.on() {
		c.checkWithNATS(bad)
		return
	}
	if !c.on() {
		for flag, set := range map[string]bool{
			"cluster-listen-address": c.ListenAddress != "", "cluster-size": c.Size != 0, "cluster-cert-file": c.CertFile != "",
			"cluster-key-file": c.KeyFile != "", "cluster-trusted-ca-file": c.TrustedCAFile != "",
		} {
			if set {
				bad(flag, "it needs --peers, the addresses of the cluster's members")
			}
		}
		if c.AdvertiseHost != "" {
			bad("cluster-advertise-host", "it needs --peers or --nats-url: a backend that is alone has no other members")
		}
		return
	}
	if c.ListenAddress == "" {
		bad("peers", "it needs --cluster-listen-address, where the other members reach this one")
	}
	files := 0
	for _, file := range [...]string{c.CertFile, c.KeyFile, c.TrustedCAFile} {
		if file != "" {
			files++
		}
	}
	if files != 0 && files != 3 {
		bad("cluster-cert-file", "it needs --cluster-key-file and --cluster-trusted-ca-file, and they need it")
	}
	switch {
	case c.Size < 0 || c.Size == 1 || c.Size > maxMembers:
		bad("cluster-size", "%d is not between 2 and %d", c.Size, maxMembers)
	case c.Size > 0 && len(c.Peers) > c.Size:
		bad("cluster-size", "%d members, and --peers names %d", c.Size, len(c.Peers))
	case c.Size == 0 && c.size() == 1:
		bad("peers", "this names the member itself alone: name at least one other")
	}
	if len(c.Peers) > maxMembers {
		bad("peers", "%d addresses are named, %d at most", len(c.Peers), maxMembers)
	}
	for _, address := range slices.Concat(c.Peers, []string{c.ListenAddress}) {
		if _, _, err := net.SplitHostPort(address); err != nil && address != "" {
			bad("peers", "%q is no HOST:PORT", address)
		}
	}
}

// maxName bounds a member's name, in bytes.
const maxName = 64

// maxMembers bounds a cluster. Each member folds all events, so more members than this cost more than they bring.
const maxMembers = 9

// complete fills in what follows from the host.
func (c *Cluster) complete() {
	if !c.on() {
		return
	}
	c.Peers = slices.Clone(c.Peers)
	for i, address := range c.Peers {
		c.Peers[i] = strings.TrimSpace(address)
	}
	if c.Name == "" {
		if host, err := os.Hostname(); err == nil {
			c.Name, _, _ = strings.Cut(host, ".")
		}
	}
	host, _, _ := net.SplitHostPort(c.ListenAddress)
	if c.NATS.on() || everyAddress(host) {
		host, _ = os.Hostname() // without a name there is none to give
	}
	c.AdvertiseHost = cmp.Or(c.AdvertiseHost, host)
}

// everyAddress reports whether a host stands for all addresses: a listener takes it, but it cannot be connected to.
func everyAddress(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// size returns how many members there are; 0 for any number.
func (c *Cluster) size() int {
	if c.NATS.on() {
		return 0
	}
	if c.Size != 0 {
		return c.Size
	}
	peers := slices.Clone(c.Peers)
	slices.Sort(peers)
	peers = slices.Compact(peers)
	if c.listed(peers) {
		return len(peers)
	}
	return len(peers) + 1
}

// listed reports whether this member is among the peers: by its listen address, or by a name of this host.
func (c *Cluster) listed(peers []string) bool {
	if slices.Contains(peers, c.ListenAddress) {
		return true
	}
	host, port, _ := net.SplitHostPort(c.ListenAddress)
	if !everyAddress(host) {
		return slices.Contains(peers, net.JoinHostPort(c.AdvertiseHost, port))
	}
	own := map[string]bool{}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			own[n.IP.String()] = true
		}
	}
	for _, peer := range peers {
		peerHost, peerPort, _ := net.SplitHostPort(peer)
		if peerPort != port {
			continue
		}
		found, err := net.LookupHost(peerHost)
		if err == nil && slices.ContainsFunc(found, func(ip string) bool { return own[ip] }) {
			return true
		}
	}
	return false
}

// routeHost returns the host by which members connect to ListenAddress that learn of this one from others: one that the
// certificate has, if possible. "" is the address that this member's own connections come from.
func (c *Cluster) routeHost() string {
	hosts := []string{c.AdvertiseHost}
	if host, _, _ := net.SplitHostPort(c.ListenAddress); !everyAddress(host) {
		hosts = []string{host, c.AdvertiseHost}
	}
	if pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err == nil {
		for _, host := range hosts {
			if pair.Leaf.VerifyHostname(host) == nil {
				return host
			}
		}
		if len(hosts) == 1 {
			return "" // the name of the host is no better than any other
		}
	}
	return hosts[0]
}

// brokerCluster returns the broker's part of the settings. brings is the id of data that the member is about to bring,
// "" for none.
func (b *Backend) brokerCluster(brings string) (*broker.Cluster, error) {
	c := &b.opts.Cluster
	if !c.on() || c.NATS.on() {
		return nil, nil
	}
	config, err := b.clusterTLS()
	if err != nil {
		return nil, err
	}
	return &broker.Cluster{
		Name: "lapwing", Members: c.size(), ListenAddress: c.ListenAddress, AdvertiseHost: c.routeHost(), Peers: c.Peers, TLS: config,
		Brings: brings,
	}, nil
}

// clusterTLS returns the configuration of connections between members, in both directions; nil without certificates.
func (b *Backend) clusterTLS() (*tls.Config, error) {
	c := &b.opts.Cluster
	if c.CertFile == "" {
		return nil, nil
	}
	files, err := tlsfiles.New(tlsfiles.Options{
		Cert: c.CertFile, Key: c.KeyFile, CA: c.TrustedCAFile, Required: true, Name: "cluster",
		Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return nil, fmt.Errorf("read certificates of the cluster: %w", err)
	}
	config, err := files.Peer()
	if err != nil {
		return nil, fmt.Errorf("read certificates of the cluster: %w", err)
	}
	return config, c.checkCertificate()
}

// checkCertificate returns an error if the other members would refuse this member's certificate: because it has none of
// the names by which they may connect, is not valid now, has not both usages, or is of another authority. They would say
// so in their logs only.
func (c *Cluster) checkCertificate() error {
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return fmt.Errorf("read certificate of the cluster: %w", err)
	}
	authorities, err := os.ReadFile(c.TrustedCAFile)
	if err != nil {
		return fmt.Errorf("read authorities of the cluster: %w", err)
	}
	valid := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	valid.Roots.AppendCertsFromPEM(authorities)
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			valid.Intermediates.AddCert(cert)
		}
	}
	for usage, name := range map[x509.ExtKeyUsage]string{
		x509.ExtKeyUsageServerAuth: "server", x509.ExtKeyUsageClientAuth: "client",
	} {
		valid.KeyUsages = []x509.ExtKeyUsage{usage}
		if _, err := pair.Leaf.Verify(valid); err != nil {
			return badCertificate(fmt.Errorf("the other members would refuse the certificate of this one as a %s's: %w", name, err))
		}
	}
	var hosts []string
	for _, address := range slices.Concat([]string{c.ListenAddress}, c.Peers) {
		if host, _, _ := net.SplitHostPort(address); !everyAddress(host) {
			hosts = append(hosts, host)
		}
	}
	hosts = append(hosts, c.AdvertiseHost)
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	if slices.ContainsFunc(hosts, func(host string) bool { return pair.Leaf.VerifyHostname(host) == nil }) {
		return nil
	}
	if len(names(pair.Leaf)) == 0 {
		return badCertificate(fmt.Errorf("the certificate has no names or addresses (subjectAltName), and the other members connect to %s",
			strings.Join(hosts, " or ")))
	}
	return badCertificate(fmt.Errorf("the certificate is for %s, and the other members connect to %s: they would refuse it",
		strings.Join(names(pair.Leaf), ", "), strings.Join(hosts, " or ")))
}

func badCertificate(err error) error { return &optionerr.Error{Flag: "cluster-cert-file", Err: err} }

// names are the host names and addresses in a certificate.
func names(cert *x509.Certificate) []string {
	all := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// majority returns how many members are a majority; 1 for any number of members.
func (c *Cluster) majority() int { return c.size()/2 + 1 }
