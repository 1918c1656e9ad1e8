//go:build !agentonly

package main

// sensuBackendKeys are the keys of a sensu-backend 6.12 that our backend does not have. They are accepted with a
// warning, so that an old configuration file works as it is.
var sensuBackendKeys = adviceFor(map[string][]string{
	"lapwing does not use etcd: its data is in state-dir": {
		"etcd-advertise-client-urls", "etcd-cert-file", "etcd-cipher-suites", "etcd-client-cert-auth",
		"etcd-client-log-level",
		"etcd-client-password", "etcd-client-urls", "etcd-client-username", "etcd-discovery", "etcd-discovery-srv",
		"etcd-election-timeout", "etcd-heartbeat-interval", "etcd-initial-advertise-peer-urls", "etcd-initial-cluster",
		"etcd-initial-cluster-state", "etcd-initial-cluster-token", "etcd-key-file", "etcd-listen-client-urls",
		"etcd-listen-peer-urls", "etcd-log-level", "etcd-max-request-bytes", "etcd-name", "etcd-peer-cert-file",
		"etcd-peer-client-cert-auth", "etcd-peer-key-file", "etcd-peer-trusted-ca-file", "etcd-quota-backend-bytes",
		"etcd-trusted-ca-file", "etcd-unsafe-no-fsync", "no-embed-etcd",
	},
	"the web page is served with the API: use api-listen-address":                                   {"dashboard-host", "dashboard-port"},
	"the web page is served with the API: use cert-file":                                            {"dashboard-cert-file"},
	"the web page is served with the API: use key-file":                                             {"dashboard-key-file"},
	"the web page is served with the API: use api-write-timeout":                                    {"dashboard-write-timeout"},
	"the web page asks the API that serves it, so the backend needs no URL of it":                   {"api-url"},
	"use pprof-listen-address, for example 127.0.0.1:6060":                                          {"debug"},
	"name the handler in agent.yml: Sensu's backend does not use it either":                         {"deregistration-handler"},
	"requests are answered with 503 until the backend is ready":                                     {"api-serve-wait-time", "agent-serve-wait-time"},
	"the backend drops messages for agents that do not read: use agent-queue":                       {"agent-write-timeout"},
	"lapwing does not limit the rate of connections; its agents spread theirs":                      {"agent-rate-limit", "agent-burst-limit"},
	"name the lists in agent-auth-crl-urls, which switches the check on":                            {"enable-cert-revocation-check"},
	"scrape /metrics of the API":                                                                    {"metrics-refresh-interval"},
	"an event never waits for event-log-file: it is left out when event-log-buffer-size is reached": {"event-log-buffer-wait"},
	"events wait in the event log, not in queues of workers; doctor says what limits a backend": {
		"eventd-workers", "eventd-buffer-size", "keepalived-workers", "keepalived-buffer-size",
	},
	"use handler-workers and handler-queue": {"pipelined-workers",
		"pipelined-buffer-size"},
	"log lines always have milliseconds":                                           {"log-millisecond-timestamps"},
	"the backend has no entity of its own":                                         {"labels", "annotations"},
	"run a binary that was built with make dist FIPS=1, or set GODEBUG=fips140=on": {"require-fips", "require-openssl"},
	"an option of lapwing backend init":                                            {"ignore-already-initialized"},
	"lapwing backend init needs no running service and asks nothing":               {"interactive", "timeout", "wait"},
	"--agent-quota-events and --namespace-quota-events bound events, and the API's connections have bounds of their own": {
		"api-rate-limit", "api-burst-limit",
	},
	"the state directory is the only store": {"dev-mode"},
	"an option of the agent":                {"url", "handshake-timeout", "heartbeat-interval", "heartbeat-timeout"},
})

// adviceFor turns keys by advice into advice by key.
func adviceFor(keys map[string][]string) map[string]string {
	all := map[string]string{}
	for advice, names := range keys {
		for _, name := range names {
			all[name] = advice
		}
	}
	return all
}
