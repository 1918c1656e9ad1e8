package metric

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/metric/relay"
	"github.com/lapwing-monitoring/lapwing/metric/remote"
	"github.com/lapwing-monitoring/lapwing/metric/ring"
)

// Check finds the options that cannot work, and names their flags. It opens nothing.
func (o *Options) Check(bad *optionerr.List) {
	for flag, address := range map[string]string{
		"carbon-listen-address": o.LineAddress, "carbon-udp-listen-address": o.UDPAddress,
		"carbon-gzip-listen-address":   o.GzipAddress,
		"carbon-tls-listen-address":    o.TLSAddress,
		"carbon-pickle-listen-address": o.PickleAddress, "carbon-protobuf-listen-address": o.ProtobufAddress,
		"graphite-listen-address": o.QueryAddress,
	} {
		if address == "" {
			continue
		}
		if _, port, err := net.SplitHostPort(address); err != nil {
			bad.Add(flag, "%q is not like 127.0.0.1:2003: %w", address, err)
		} else if _, err := net.LookupPort("tcp", port); err != nil {
			bad.Add(flag, "%q is not like 127.0.0.1:2003: %q is not a port: it must be from 0 to 65535", address, port)
		}
	}
	for flag, file := range map[string]string{
		"storage-schemas-file": o.SchemasFile, "storage-aggregation-file": o.AggregationFile, "aggregation-rules-file": o.AggregationRulesFile,
		"rewrite-rules-file": o.RewriteFile, "carbon-whitelist-file": o.WhitelistFile, "carbon-blacklist-file": o.BlacklistFile,
		"relay-rules-file": o.Relay.RulesFile,
	} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			bad.Add(flag, "%w", err)
		}
	}
	o.checkRemote(bad)
	o.checkTLS(bad)
	const most = 1 << 40
	optionerr.Within(bad, "carbon-max-connections", o.Listen.MaxConnections, 1, 1<<20)
	optionerr.Within(bad, "carbon-idle-timeout", o.Listen.IdleTimeout, time.Second, 365*24*time.Hour)
	optionerr.Within(bad, "metric-max-series", o.Store.MaxSeries, 1, most)
	optionerr.Within(bad, "metric-new-series-per-minute", o.Store.CreatesPerMinute, 1, most)
	optionerr.Within(bad, "metric-late-window", o.Store.LateWindow, time.Second, 365*24*time.Hour)
	optionerr.Within(bad, "metric-sync-interval", o.Store.SyncInterval, time.Millisecond, time.Hour)
	optionerr.Within(bad, "metric-min-free-disk", o.Store.MinFreeBytes, 1<<20, most)
	optionerr.Within(bad, "metric-memory-limit", o.Store.MemoryLimit, 1<<20, most)
	optionerr.Within(bad, "graphite-query-timeout", o.QueryTimeout, 10*time.Millisecond, time.Hour)
	optionerr.Within(bad, "metric-replication-factor", o.Replication, 1, 3)
	optionerr.Within(bad, "metric-member-spill-bytes", o.MemberSpillBytes, 1<<20, most)
	optionerr.Within(bad, "relay-replication-factor", o.Relay.Replication, 1, 100)
	optionerr.Within(bad, "relay-queue-bytes", o.Relay.QueueBytes, 128<<10, most)
	optionerr.Within(bad, "relay-spill-bytes", o.Relay.SpillBytes, 1<<20, most)
	if _, err := relay.ParseMethod(o.Relay.Method); o.Relay.Method != "" && err != nil {
		bad.Add("relay-method", "%w", err)
	}
	if _, err := ring.ParseMethod(o.Relay.Hash); o.Relay.Hash != "" && err != nil {
		bad.Add("relay-hash", "%w", err)
	}
	if _, err := relay.ParseProtocol(o.Relay.Protocol); o.Relay.Protocol != "" && err != nil {
		bad.Add("relay-protocol", "%w", err)
	}
	o.checkDestinations(bad)
	if o.Relay.Method == relay.Rules.String() && o.Relay.RulesFile == "" {
		bad.Add("relay-method", "rules needs --relay-rules-file")
	}
	if n := len(o.Relay.Destinations); n > 0 && o.Relay.Replication > n {
		bad.Add("relay-replication-factor", "it is %d, and there are %d --relay-destinations", o.Relay.Replication, n)
	}
	if o.RemoteWriteIn && o.QueryAddress == "" {
		bad.Add("graphite-remote-write", "it needs --graphite-listen-address")
	}
	if o.Aggregator.AggregatesOnly && o.AggregationRulesFile == "" {
		bad.Add("aggregates-only", "it needs --aggregation-rules-file")
	}
	if o.Relay.Only && (len(o.RemoteWriteURLs) > 0 || o.RemoteWriteFile != "") {
		bad.Add("relay-only", "--metric-remote-write-url and --metric-remote-write-file send stored points, and nothing is stored")
	}
	if o.Relay.Only && len(o.Relay.Destinations) == 0 {
		bad.Add("relay-only", "there are no --relay-destinations")
	}
}

// checkRemote finds receivers of remote write that cannot work.
func (o *Options) checkRemote(bad *optionerr.List) {
	receivers, err := o.remoteOptions()
	if err != nil {
		bad.Add("metric-remote-write-file", "%w", err)
		urls := Options{RemoteWriteURLs: o.RemoteWriteURLs}
		receivers, _ = urls.remoteOptions() // it fails for files only
	}
	for i, ro := range receivers {
		err := ro.Check()
		switch {
		case err == nil:
		case errors.Is(err, remote.ErrUserInURL) && i < len(o.RemoteWriteURLs):
			bad.Add("metric-remote-write-url", "%w; --metric-remote-write-file takes both", err)
		case i < len(o.RemoteWriteURLs):
			bad.Add("metric-remote-write-url", "%w", err)
		default:
			bad.Add("metric-remote-write-file", "%w", err)
		}
	}
}

// checkTLS finds what is wrong with the encrypted listener.
func (o *Options) checkTLS(bad *optionerr.List) {
	t := &o.ListenTLS
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""):
		bad.Add("carbon-tls-cert-file", "a certificate and --carbon-tls-key-file must come together")
	case o.TLSAddress == "" && t.CertFile+t.ClientCAFile != "":
		bad.Add("carbon-tls-listen-address",
			"it is missing, and --carbon-tls-cert-file and --carbon-tls-client-ca-file are for it")
	case o.TLSAddress != "" && t.CertFile == "":
		bad.Add("carbon-tls-listen-address", "it needs --carbon-tls-cert-file and --carbon-tls-key-file")
	case o.TLSAddress != "":
		if _, err := tlsfiles.New(t.files()); err != nil {
			bad.Add("carbon-tls-cert-file", "%w", err)
		}
	}
}

// checkDestinations finds what is wrong with the destinations of the relay and with the files for TLS to them.
func (o *Options) checkDestinations(bad *optionerr.List) {
	r := &o.Relay
	anyEncrypted := false
	for _, text := range r.Destinations {
		_, encrypted, err := parseDestination(text)
		if err != nil {
			bad.Add("relay-destinations", "%w", err)
		}
		if encrypted && r.Protocol == relay.UDP.String() {
			bad.Add("relay-destinations", "%q: TLS does not work with --relay-protocol udp", text)
		}
		anyEncrypted = anyEncrypted || encrypted
	}
	switch {
	case (r.CertFile == "") != (r.KeyFile == ""):
		bad.Add("relay-tls-cert-file", "a certificate and --relay-tls-key-file must come together")
	case !anyEncrypted && r.CertFile != "":
		bad.Add("relay-tls-cert-file", "it is for --relay-destinations that begin with tls://, and there are none")
	case !anyEncrypted && r.CAFile != "":
		bad.Add("relay-tls-ca-file", "it is for --relay-destinations that begin with tls://, and there are none")
	case anyEncrypted:
		files := *o
		files.Registerer = nil
		if _, err := files.relayFiles(); err != nil {
			bad.Add("relay-destinations", "%w", err)
		}
	}
}
