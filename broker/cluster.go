package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster says how the servers of several backends find and trust each other. Each pair of members has a connection, a
// route.
type Cluster struct {
	// Name is the cluster's name. Routes to servers of another cluster are refused. Required.
	Name string
	// Members is how many members the cluster has, this one included. A new cluster is made by a majority of them.
	// At least 2.
	Members int
	// ListenAddress takes the other members' routes: host:port. Port 0 takes a free one, see Broker.ClusterAddr.
	ListenAddress string
	// AdvertiseHost is the host by which members connect that learn of this one from others. Default: the address that
	// this one's own connections come from.
	AdvertiseHost string
	// Peers are the listen addresses of the members, host:port. This one may be among them. A name may have several
	// addresses.
	Peers []string
	// TLS has the certificate that this member shows, and verifies those of the others in both directions. nil is
	// allowed if all addresses are loopback addresses.
	TLS *tls.Config
	// Brings is a random id of data that this member is to bring into a new cluster, which the others wait for: see
	// Broker.Brought. Default "": it brings none.
	Brings string
}

// errOtherHosts ends messages about addresses that need TLS.
var errOtherHosts = errors.New("other hosts are reached only over TLS with certificates: " +
	"set --cluster-cert-file, --cluster-key-file and --cluster-trusted-ca-file")

func (c *Cluster) check(server string) error {
	switch {
	case server == "" || strings.ContainsAny(server, " \t\r\n"):
		return fmt.Errorf("cluster: %q is no name of a member", server)
	case c.Name == "" || strings.ContainsAny(c.Name, " \t\r\n"):
		return fmt.Errorf("cluster: %q is no name of a cluster", c.Name)
	case c.Members < 2:
		return fmt.Errorf("cluster: %d members are no cluster: name at least one peer", c.Members)
	case len(c.Peers) == 0 || len(c.Peers) > c.Members:
		return fmt.Errorf("cluster: %d peers are named for %d members", len(c.Peers), c.Members)
	}
	for _, address := range append([]string{c.ListenAddress}, c.Peers...) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("cluster: address %q: %w", address, err)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 && address != c.ListenAddress {
			return fmt.Errorf("cluster: address %q: %q is no port", address, port)
		}
		if c.TLS == nil && !loopback(host) {
			return fmt.Errorf("cluster: address %s: %w", address, errOtherHosts)
		}
	}
	return c.checkTLS()
}

// loopback reports whether a host is this one, however it is reached.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *Cluster) checkTLS() error {
	if c.TLS == nil {
		return nil
	}
	shows := len(c.TLS.Certificates) > 0 || c.TLS.GetCertificate != nil && c.TLS.GetClientCertificate != nil
	if !shows {
		return errors.New("cluster: TLS without a certificate for both directions: " +
			"set --cluster-cert-file and --cluster-key-file")
	}
	accepts := c.TLS.ClientAuth == tls.RequireAndVerifyClientCert && c.TLS.ClientCAs != nil
	connects := c.TLS.RootCAs != nil && !c.TLS.InsecureSkipVerify
	if !accepts || !connects {
		return errors.New("cluster: TLS must verify the members' certificates in both directions: " +
			"set --cluster-trusted-ca-file")
	}
	return nil
}

// memberOptions returns the options of a member's server.
func (b *Broker) memberOptions(routes []string) *server.Options {
	c, opts := b.opts.Cluster, b.serverOptions()
	host, text, _ := net.SplitHostPort(c.ListenAddress) // checked by New
	port, _ := strconv.Atoi(text)
	if port == 0 {
		port = server.RANDOM_PORT
	}
	opts.CustomClientAuthentication = b.access
	opts.Host, opts.Port = "127.0.0.1", server.RANDOM_PORT
	opts.Cluster = server.ClusterOpts{
		Name: c.Name, Host: cmp.Or(host, "0.0.0.0"), Port: port, TLSConfig: c.TLS, TLSTimeout: 10,
		NoAdvertise: true, PingInterval: 5 * time.Second, MaxPingsOut: 3,
		ConnectRetries: 1 << 30, // a member that another one has named is tried again, as Peers are
	}
	if c.AdvertiseHost != "" && port > 0 {
		opts.Cluster.Advertise = net.JoinHostPort(c.AdvertiseHost, text)
	}
	for _, address := range routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: address})
	}
	return opts
}

// free returns an error if an address cannot be listened on. The server itself would only log it.
func free(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// checkDir refuses the directory of a single server in a cluster, and the other way round. The cluster would delete the
// single server's streams because it does not know them. A single server would change what only a majority may change.
func (b *Broker) checkDir() error {
	meta := exists(filepath.Join(b.opts.Dir, "jetstream", "$SYS", "_js_", "_meta_"))
	switch {
	case b.opts.Cluster == nil && meta:
		return fmt.Errorf("start broker: %s belongs to a member of a cluster: start it with --peers", b.opts.Dir)
	case b.opts.Cluster != nil && !meta && exists(filepath.Join(b.opts.Dir, "jetstream", "$G", "streams")):
		return fmt.Errorf("start broker: %s has the data of a single backend, which cannot join a cluster: "+
			"start with an empty directory", b.opts.Dir)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// waitPoll is the pause between two looks at something that is waited for.
const waitPoll = 50 * time.Millisecond

// join waits until this member knows the cluster's leader. From now on it looks after the streams' copies: a full disk
// may close the store while it waits, and only a store that is opened again goes on.
func (b *Broker) join(ctx context.Context) error {
	if err := b.answer(b.conn, func([]byte) {}); err != nil {
		return err
	}
	b.tasks.Go(b.keepReplicas)
	return b.await(ctx, func() (string, error) {
		if b.MetaStatus().Leader == "" {
			return "the cluster's members to elect a leader", nil
		}
		return "", nil
	})
}

// await waits until look returns "" or an error. It says what look says that it waits for. Stop and ctx end it.
func (b *Broker) await(ctx context.Context, look func() (string, error)) error {
	tick := time.NewTicker(waitPoll)
	defer tick.Stop()
	var said string
	var at time.Time
	for {
		what, err := look()
		if err != nil || what == "" {
			return err
		}
		if what != said {
			b.opts.Waiting("waiting for " + what)
		}
		if what != said || time.Since(at) > sayAgain {
			b.log.Info("the broker waits", "for", what)
			said, at = what, time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-b.life.Done():
			return fmt.Errorf("wait for %s: %w", what, errStopped)
		}
	}
}

// sayAgain is the time between two log lines about the same wait.
const sayAgain = 15 * time.Second

var errStopped = errors.New("the broker was stopped")

// Name returns this server's name.
func (b *Broker) Name() string { return b.opts.Name }

// Alone reports whether this process alone uses the streams. If not, other backends write to them too, and there are
// pauses while a stream has no leader.
func (b *Broker) Alone() bool { return b.opts.Cluster == nil && b.opts.External == nil }

// Replicas returns how many members keep a copy of each stream: 1 alone, 3 in a cluster of three or more. On NATS
// servers of its own each stream may have another number, see StreamStatus.
func (b *Broker) Replicas() int {
	if b.opts.Cluster == nil {
		return 1
	}
	return min(mostReplicas, b.opts.Cluster.Members)
}

// ClusterAddr returns the address at which this member takes routes, or nil if it is alone or not running.
func (b *Broker) ClusterAddr() net.Addr {
	srv := b.server()
	if srv == nil {
		return nil
	}
	if addr := srv.ClusterAddr(); addr != nil { // a nil *net.TCPAddr is no nil net.Addr
		return addr
	}
	return nil
}

// Peers returns the names of the servers that this one has a route to, in order.
func (b *Broker) Peers() []string {
	srv := b.server()
	if srv == nil {
		return nil
	}
	routes, err := srv.Routez(nil)
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range routes.Routes { // there are several for each peer
		if r.RemoteName != b.opts.Name {
			names = append(names, r.RemoteName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (b *Broker) server() *server.Server {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.srv
}

// Replica is a member's copy of a stream.
type Replica struct {
	Name    string
	Current bool          // it has everything
	Offline bool          // it has not been heard of
	Lag     uint64        // how many changes it has not got
	Heard   time.Duration // how long ago it was heard of
}

// Group is how the members that keep the same data stand. Only the leader knows how far the others are.
type Group struct {
	Leader   string    // "" if there is none, or none is known
	Last     uint64    // of a stream, the leader's newest message
	Replicas []Replica // all but the leader
	Copies   int       // of a stream: how many there should be; 0 if that is not known
}

// MetaStatus returns how the members stand that decide who keeps which stream, as far as this member knows without
// asking another one. Alone, its leader is this server. It knows nothing of NATS servers that are run beside lapwing.
func (b *Broker) MetaStatus() Group {
	if b.Alone() {
		return Group{Leader: b.opts.Name}
	}
	srv := b.server()
	if srv == nil {
		return Group{}
	}
	info, err := srv.Jsz(nil)
	if err != nil || info.Meta == nil {
		return Group{}
	}
	return groupOf(info.Meta.Leader, info.Meta.Replicas)
}

// UnknownPrefix begins the name of a Replica whose server is away and has not been heard since the others started: it is
// known by an id only, which follows.
const UnknownPrefix = "unknown-"

// peerID finds the id in what the server says instead of the name.
var peerID = regexp.MustCompile(`^Server name unknown .*\(peerID: (\w+)\)$`)

// UnknownName returns the name that this member has at members that do not know its own; "" before Start.
func (b *Broker) UnknownName() string {
	srv := b.server()
	if srv == nil {
		return ""
	}
	return UnknownPrefix + srv.Node()
}

// nameOf returns the name of a server, from what a server says of it.
func nameOf(said string) string {
	if unknown := peerID.FindStringSubmatch(said); unknown != nil {
		return UnknownPrefix + unknown[1]
	}
	return said
}

func groupOf(leader string, peers []*server.PeerInfo) Group {
	g := Group{Leader: leader}
	for _, p := range peers {
		if p.Name != leader {
			g.Replicas = append(g.Replicas, Replica{nameOf(p.Name), p.Current, p.Offline, p.Lag, p.Active})
		}
	}
	return g
}

// ErrConnected is returned if a member that is still connected is to be removed.
var ErrConnected = errors.New("it is still connected: stop it first")

// RemovePeer removes a member that is gone for good. Other members that keep no copy of its streams take its place; if
// there are none, the streams have a copy less until a new member joins. The name must never come back: a member that
// joins again does so with an empty directory and a new name. A member whose name the servers have forgotten has the name
// that its Replica has.
func (b *Broker) RemovePeer(ctx context.Context, name string) error {
	if name == b.opts.Name || slices.Contains(b.Peers(), name) {
		return fmt.Errorf("remove member %s: %w", name, ErrConnected)
	}
	var answer struct {
		Success bool `json:"success"`
		Error   *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	request := server.JSApiMetaServerRemoveRequest{Server: name}
	if id, unknown := strings.CutPrefix(name, UnknownPrefix); unknown {
		request = server.JSApiMetaServerRemoveRequest{Peer: id}
	}
	err := b.askSystem(ctx, server.JSApiRemoveServer, request, &answer)
	if err == nil && answer.Error != nil {
		err = errors.New(answer.Error.Description)
	}
	if err != nil {
		return fmt.Errorf("remove member %s: %w", name, err)
	}
	return nil
}

// askSystem sends a request that only the system's account may send.
func (b *Broker) askSystem(ctx context.Context, subject string, request, answer any) error {
	srv := b.server()
	if srv == nil || b.access == nil {
		return errors.New("the broker is no member of a cluster, or is not running")
	}
	conn, err := b.connect(srv, systemUser)
	if err != nil {
		return err
	}
	defer conn.Close()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	msg, err := conn.RequestWithContext(ctx, subject, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(msg.Data, answer)
}
