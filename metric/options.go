package metric

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/metric/aggregator"
	"github.com/lapwing-monitoring/lapwing/metric/carbon"
	"github.com/lapwing-monitoring/lapwing/metric/relay"
	"github.com/lapwing-monitoring/lapwing/metric/remote"
	"github.com/lapwing-monitoring/lapwing/metric/ring"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// Options are the settings of a Server. Zero values are the defaults, which DefaultOptions returns where they are not
// "none".
type Options struct {
	// Dir holds all that the server keeps. Required.
	Dir string

	// Addresses of listeners, HOST:PORT; none if empty.
	LineAddress     string // carbon's plaintext over TCP
	UDPAddress      string // the same over UDP
	GzipAddress     string // the same over TCP, compressed with gzip
	TLSAddress      string // the same over TCP, encrypted; it needs ListenTLS
	PickleAddress   string
	ProtobufAddress string
	// QueryAddress is where Graphite's and Prometheus' HTTP APIs are, without sign-in. Prometheus' remote write is there
	// too, if RemoteWriteIn is set.
	QueryAddress  string
	RemoteWriteIn bool

	// ListenTLS are the files for TLSAddress.
	ListenTLS ListenTLS
	// Listen has the settings that all listeners share.
	Listen carbon.Options

	// Files of carbon, read as carbon reads them, and read again when they change. Empty is the default of each part.
	SchemasFile, AggregationFile      string
	AggregationRulesFile, RewriteFile string
	WhitelistFile, BlacklistFile      string

	// Store is the store's settings. Its Dir, Policy and clock are the server's.
	Store store.Options
	// Aggregator is the settings of aggregation. Its file and Emit are the server's.
	Aggregator aggregator.Options
	// Relay sends points on to other carbon servers. Default: none.
	Relay RelayOptions
	// RemoteWriteURLs are other stores that get each stored sample by Prometheus remote write. Default: none.
	RemoteWriteURLs []string
	// RemoteWriteFile lists more of them, with their credentials: see remote.ReadReceivers. Default: none.
	RemoteWriteFile string

	// Cluster is the members that share the series. Default: none, all series are here.
	Cluster *Cluster
	// Replication is how many members store each series, from 1 to 3. Default 2.
	Replication int
	// MemberSpillBytes bounds the disk for points that wait for one other member. Default 4 GiB.
	MemberSpillBytes int64

	// Forget is how long a series has no points until it leaves the memory; its data stay. Default 1 h.
	Forget time.Duration
	// SelfInterval is the time between two points of the server about itself, under carbon's names. Default 1 min;
	// negative: none.
	SelfInterval time.Duration
	// SelfHost is the host in these names. Default "localhost".
	SelfHost string

	// QueryTimeout bounds a query. Default 30 s.
	QueryTimeout time.Duration
	// MaxSeries bounds the series that a render request may read, and MaxPoints their values. Default 50,000 and
	// 10,000,000. What its functions compute may be three times as much.
	MaxSeries, MaxPoints int

	// Version is for /version and buildinfo.
	Version string
	// Now is the clock. Default: time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// ListenTLS are PEM files, read again when they change.
type ListenTLS struct {
	// CertFile and KeyFile are the listener's certificate with its chain, and its key.
	CertFile, KeyFile string
	// ClientCAFile has the authorities that must have signed the senders' certificates. Default: senders need none.
	ClientCAFile string
}

// files are the files of a listener.
func (t *ListenTLS) files() tlsfiles.Options {
	return tlsfiles.Options{Cert: t.CertFile, Key: t.KeyFile, CA: t.ClientCAFile, Required: t.ClientCAFile != "",
		Name: "carbon"}
}

// RelayOptions are about other carbon servers that get the points too.
type RelayOptions struct {
	// Destinations are HOST:PORT[:INSTANCE], or tls://HOST:PORT[:INSTANCE] for those that are sent to by TLS. Default:
	// none.
	Destinations []string
	// CAFile has the authorities of their certificates; default the system's. CertFile and KeyFile are the certificate
	// that they are shown; default none. All are PEM, and new connections use their newest content.
	CAFile, CertFile, KeyFile string
	// Method is constant, rules, consistent-hashing or aggregated-consistent-hashing.
	Method string
	// Hash is the ring's: carbon_ch, carbon_ch-c-relay, fnv1a_ch, fnv1a_ch-carbon or jump_fnv1a_ch.
	Hash string
	// RulesFile is relay-rules.conf, for the method rules.
	RulesFile string
	// Replication is how many destinations get each series. Diverse has them on different hosts.
	Replication int
	Diverse     bool
	// Protocol is pickle, line, protobuf, udp or gzip.
	Protocol string
	// QueueBytes bounds the points of a destination in memory, SpillBytes those on disk.
	QueueBytes int
	SpillBytes int64
	// Only relays: nothing is stored here.
	Only bool
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		Forget: time.Hour, SelfInterval: time.Minute, SelfHost: "localhost", QueryTimeout: 30 * time.Second,
		MaxSeries: 50_000, MaxPoints: 10_000_000, Replication: 2, MemberSpillBytes: 4 << 30,
		Relay: RelayOptions{
			Method: relay.ConsistentHashing.String(), Hash: ring.CarbonCH.String(), Replication: 1, Diverse: true,
			Protocol:   relay.Pickle.String(),
			QueueBytes: 64 << 20, SpillBytes: 1 << 30,
		},
	}
}

func (o *Options) complete() error {
	if o.Dir == "" {
		return errors.New("metric: Dir is required")
	}
	d := DefaultOptions()
	o.Forget, o.SelfInterval = cmp.Or(o.Forget, d.Forget), cmp.Or(o.SelfInterval, d.SelfInterval)
	o.SelfHost, o.QueryTimeout = cmp.Or(o.SelfHost, d.SelfHost), cmp.Or(o.QueryTimeout, d.QueryTimeout)
	o.MaxSeries, o.MaxPoints = cmp.Or(o.MaxSeries, d.MaxSeries), cmp.Or(o.MaxPoints, d.MaxPoints)
	o.Replication, o.MemberSpillBytes = cmp.Or(o.Replication, d.Replication),
		cmp.Or(o.MemberSpillBytes, d.MemberSpillBytes)
	r, dr := &o.Relay, &d.Relay
	r.Method, r.Hash, r.Protocol = cmp.Or(r.Method, dr.Method), cmp.Or(r.Hash, dr.Hash), cmp.Or(r.Protocol, dr.Protocol)
	r.Replication, r.QueueBytes, r.SpillBytes = cmp.Or(r.Replication, dr.Replication), cmp.Or(r.QueueBytes, dr.QueueBytes),
		cmp.Or(r.SpillBytes, dr.SpillBytes)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if r.Only && len(r.Destinations) == 0 {
		return errors.New("relay only: there are no destinations")
	}
	o.SelfHost = strings.ReplaceAll(o.SelfHost, ".", "_")
	return nil
}

// remoteOptions are those of all receivers of remote write.
func (o *Options) remoteOptions() ([]remote.Options, error) {
	var all []remote.Options
	for i, url := range o.RemoteWriteURLs {
		all = append(all, remote.Options{Name: fmt.Sprintf("%s%d", urlReceiver, i), URL: url})
	}
	if o.RemoteWriteFile != "" {
		listed, err := remote.ReadReceivers(o.RemoteWriteFile)
		if err != nil {
			return nil, fmt.Errorf("receivers of remote write: %w", err)
		}
		for _, ro := range listed {
			if strings.HasPrefix(ro.Name, urlReceiver) {
				return nil, fmt.Errorf("receivers of remote write: %s: name %q: names that begin with %q are those of URLs without "+
					"a file", o.RemoteWriteFile, ro.Name, urlReceiver)
			}
			all = append(all, ro)
		}
	}
	for i := range all {
		all[i].Log, all[i].Registerer = o.Logger, o.Registerer
	}
	return all, nil
}

// urlReceiver begins the names of receivers that are only a URL.
const urlReceiver = "remote-"

// remoteDir is where the queue of a receiver is.
func (o *Options) remoteDir(name string) string {
	if strings.HasPrefix(name, urlReceiver) {
		return filepath.Join(o.Dir, name)
	}
	return filepath.Join(o.Dir, "remote-write", name)
}

// relayOptions turns the settings into those of package relay.
func (o *Options) relayOptions(names func(name string) []string, rules []relay.Rule) (relay.Options, error) {
	r := &o.Relay
	out := relay.Options{Replication: r.Replication, Rules: rules, Logger: o.Logger, Registerer: o.Registerer}
	var err error
	if out.Method, err = relay.ParseMethod(r.Method); err != nil {
		return out, fmt.Errorf("relay method: %w", err)
	}
	if out.Ring.Method, err = ring.ParseMethod(r.Hash); err != nil {
		return out, fmt.Errorf("relay hash: %w", err)
	}
	out.Ring.Diverse = r.Diverse
	protocol, err := relay.ParseProtocol(r.Protocol)
	if err != nil {
		return out, fmt.Errorf("relay protocol: %w", err)
	}
	var files *tlsfiles.Files
	for _, text := range r.Destinations {
		d, encrypted, err := parseDestination(text)
		if err != nil {
			return out, fmt.Errorf("relay destination: %w", err)
		}
		to := relay.DestinationOptions{
			Destination: d, Protocol: protocol, MaxQueueBytes: r.QueueBytes, MaxSpillBytes: r.SpillBytes,
		}
		if encrypted {
			if files == nil {
				if files, err = o.relayFiles(); err != nil {
					return out, fmt.Errorf("TLS of relay destinations: %w", err)
				}
			}
			to.TLS = files.Client
		}
		out.Destinations = append(out.Destinations, to)
	}
	out.AggregateNames = func(name string, dst []string) []string { return append(dst, names(name)...) }
	return out, nil
}

// parseDestination reads a destination of the relay, and reports whether TLS leads to it.
func parseDestination(text string) (d ring.Destination, encrypted bool, err error) {
	text, encrypted = strings.CutPrefix(strings.TrimSpace(text), "tls://")
	d, err = ring.ParseDestination(text)
	return d, encrypted, err
}

// relayFiles reads the files for TLS to the relay's destinations.
func (o *Options) relayFiles() (*tlsfiles.Files, error) {
	r := &o.Relay
	files := tlsfiles.Options{Cert: r.CertFile, Key: r.KeyFile, CA: r.CAFile, Name: "relay", Logger: o.Logger}
	if r.CertFile != "" {
		files.Registerer = o.Registerer // without a certificate there is no expiry to show
	}
	return tlsfiles.New(files)
}
