//go:build !agentonly

package main

import (
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
	"github.com/lapwing-monitoring/lapwing/metric"
)

// metricZeros are the flags of metricFlags that take 0. Their help says what 0 does.
var metricZeros = []string{
	"carbon-idle-timeout", "carbon-max-connections", "metric-late-window", "metric-max-series", "metric-memory-limit",
	"metric-min-free-disk", "metric-new-series-per-minute", "metric-sync-interval",
}

// metricFlags map flags onto the options of the metrics half. The backend and `lapwing carbon` have them.
func metricFlags(f *pflag.FlagSet, o *metric.Options) {
	f.StringVar(&o.LineAddress, "carbon-listen-address", o.LineAddress,
		"TCP address for Graphite's plaintext protocol, for example 127.0.0.1:2003; none if empty")
	f.StringVar(&o.UDPAddress, "carbon-udp-listen-address", o.UDPAddress,
		"UDP address for Graphite's plaintext protocol; none if empty")
	f.StringVar(&o.GzipAddress, "carbon-gzip-listen-address", o.GzipAddress,
		"TCP address for Graphite's plaintext protocol on connections compressed with gzip; none if empty")
	f.StringVar(&o.TLSAddress, "carbon-tls-listen-address", o.TLSAddress,
		"TCP address for Graphite's plaintext protocol on connections encrypted with TLS; none if empty")
	f.StringVar(&o.ListenTLS.CertFile, "carbon-tls-cert-file", o.ListenTLS.CertFile,
		"certificate for --carbon-tls-listen-address with its chain (PEM)")
	f.StringVar(&o.ListenTLS.KeyFile, "carbon-tls-key-file", o.ListenTLS.KeyFile,
		"private key for --carbon-tls-cert-file (PEM)")
	f.StringVar(&o.ListenTLS.ClientCAFile, "carbon-tls-client-ca-file", o.ListenTLS.ClientCAFile,
		"authorities that must have signed the certificates of senders to --carbon-tls-listen-address (PEM); senders need none "+
			"if empty")
	f.StringVar(&o.PickleAddress, "carbon-pickle-listen-address", o.PickleAddress,
		"TCP address for Graphite's pickle protocol, for example 127.0.0.1:2004; none if empty")
	f.StringVar(&o.ProtobufAddress, "carbon-protobuf-listen-address", o.ProtobufAddress,
		"TCP address for carbon's protobuf protocol; none if empty")
	f.IntVar(&o.Listen.MaxConnections, "carbon-max-connections", o.Listen.MaxConnections,
		"connections to one carbon listener; more wait; 0 for 15,000")
	f.Var(duration.New(o.Listen.IdleTimeout, &o.Listen.IdleTimeout), "carbon-idle-timeout",
		"time without a byte after which a carbon connection is closed; 0 for 10m")
	f.StringVar(&o.QueryAddress, "graphite-listen-address", o.QueryAddress,
		"address for the HTTP APIs of Graphite (/render, /metrics/find) and Prometheus (/api/v1/query), without sign-in; none if empty")
	f.BoolVar(&o.RemoteWriteIn, "graphite-remote-write", o.RemoteWriteIn,
		"take Prometheus remote write (/api/v1/write) at --graphite-listen-address, without sign-in")
	f.Var(duration.New(o.QueryTimeout, &o.QueryTimeout), "graphite-query-timeout", "longest time for a query of metrics")
	f.StringVar(&o.SchemasFile, "storage-schemas-file", o.SchemasFile,
		"carbon's storage-schemas.conf; without it 10s:1d,1m:30d,10m:1y")
	f.StringVar(&o.AggregationFile, "storage-aggregation-file", o.AggregationFile, "carbon's storage-aggregation.conf")
	f.StringVar(&o.AggregationRulesFile, "aggregation-rules-file", o.AggregationRulesFile,
		"carbon's aggregation-rules.conf: series computed from other series as points arrive")
	f.BoolVar(&o.Aggregator.AggregatesOnly, "aggregates-only", o.Aggregator.AggregatesOnly,
		"store only series that --aggregation-rules-file makes, as carbon does with FORWARD_ALL = False")
	f.BoolVar(&o.Aggregator.Carbon, "aggregate-like-carbon", o.Aggregator.Carbon,
		"compute the series of --aggregation-rules-file as carbon does: each point counts, and intervals that are still open are stored, too")
	f.StringVar(&o.RewriteFile, "rewrite-rules-file", o.RewriteFile, "carbon's rewrite-rules.conf")
	f.StringVar(&o.WhitelistFile, "carbon-whitelist-file", o.WhitelistFile,
		"carbon's whitelist.conf: names of series that are taken")
	f.StringVar(&o.BlacklistFile, "carbon-blacklist-file", o.BlacklistFile,
		"carbon's blacklist.conf: names of series that are refused")
	f.IntVar(&o.Store.MaxSeries, "metric-max-series", o.Store.MaxSeries,
		"series with recent points; points of further series are refused; 0 for 10,000,000")
	f.IntVar(&o.Store.CreatesPerMinute, "metric-new-series-per-minute", o.Store.CreatesPerMinute,
		"new series a minute; points of further new series are refused; 0 for no bound")
	f.Var(duration.New(o.Store.LateWindow, &o.Store.LateWindow), "metric-late-window",
		"how much older than the newest point a point may be; 0 for 24h")
	f.Var(duration.New(o.Store.SyncInterval, &o.Store.SyncInterval), "metric-sync-interval",
		"time between two syncs of points to the disk; 0 for 1s")
	f.Int64Var(&o.Store.MinFreeBytes, "metric-min-free-disk", o.Store.MinFreeBytes,
		"bytes of free disk below which points are dropped until there is room again; 0 for 512 MiB")
	f.Int64Var(&o.Store.MemoryLimit, "metric-memory-limit", o.Store.MemoryLimit,
		"bytes of memory for series with recent points; at this bound new series are refused; 0 for no bound, and in a backend for a "+
			"third of --memory-limit")
	flaggroup.Set(f, "Metrics")
	relayFlags(f, &o.Relay)
	f.StringSliceVar(&o.RemoteWriteURLs, "metric-remote-write-url", nil,
		"URLs of other stores (Mimir, Thanos, VictoriaMetrics, Prometheus) that get each stored point by remote write, without "+
			"credentials")
	f.StringVar(&o.RemoteWriteFile, "metric-remote-write-file", o.RemoteWriteFile,
		"YAML file with more stores that get each stored point by remote write, and with their credentials")
	flaggroup.Set(f, "Metrics for other servers")
}

// relayFlags are about other carbon servers that get the points too.
func relayFlags(f *pflag.FlagSet, r *metric.RelayOptions) {
	f.StringSliceVar(&r.Destinations, "relay-destinations", r.Destinations,
		"carbon servers that get the points too, HOST:PORT[:INSTANCE] or tls://HOST:PORT[:INSTANCE], in the order of their cluster's "+
			"configuration")
	f.StringVar(&r.CAFile, "relay-tls-ca-file", r.CAFile,
		"authorities that must have signed the certificates of --relay-destinations with tls:// (PEM); the system's if empty")
	f.StringVar(&r.CertFile, "relay-tls-cert-file", r.CertFile,
		"certificate that --relay-destinations with tls:// are shown (PEM); none if empty")
	f.StringVar(&r.KeyFile, "relay-tls-key-file", r.KeyFile, "private key for --relay-tls-cert-file (PEM)")
	f.StringVar(&r.Method, "relay-method", r.Method,
		"how series are placed on --relay-destinations: constant (all get all), rules, consistent-hashing or aggregated-consistent-hashing")
	f.StringVar(&r.Hash, "relay-hash", r.Hash,
		"hash ring of --relay-destinations: carbon_ch, carbon_ch-c-relay, fnv1a_ch, fnv1a_ch-carbon or jump_fnv1a_ch")
	f.StringVar(&r.RulesFile, "relay-rules-file", r.RulesFile, "carbon's relay-rules.conf, for --relay-method rules")
	f.IntVar(&r.Replication, "relay-replication-factor", r.Replication, "how many of --relay-destinations get each series")
	f.BoolVar(&r.Diverse, "relay-diverse-replicas", r.Diverse, "place the copies of a series on different hosts")
	f.StringVar(&r.Protocol, "relay-protocol", r.Protocol, "protocol of --relay-destinations: pickle, line, protobuf, udp or gzip (compressed lines); line for the --carbon-tls-listen-address of another lapwing")
	f.IntVar(&r.QueueBytes, "relay-queue-bytes", r.QueueBytes,
		"memory for the points of one destination; more wait on disk")
	f.Int64Var(&r.SpillBytes, "relay-spill-bytes", r.SpillBytes,
		"disk for the points of one destination; more are dropped")
	f.BoolVar(&r.Only, "relay-only", r.Only, "store nothing here, and only pass points on to --relay-destinations")
}
