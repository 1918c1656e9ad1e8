// Package lacking lists what Sensu Go 6 has and lapwing lacks, with what to use instead: kinds of resources and commands of
// sensuctl. The client's commands and the copy of a Sensu say it, and a test compares docs/compatibility.md with it. What
// lapwing does differently is in the docs alone.
package lacking

import "slices"

// Kind is a kind of resource that lapwing lacks.
type Kind struct {
	Group   string
	Types   []string
	Instead string // a sentence
}

// Kinds are the kinds that lapwing lacks.
var Kinds = []Kind{
	{"secrets/v1", []string{"Provider", "Env", "VaultProvider", "CyberArkProvider", "Secret"},
		"Give their values to checks, handlers and mutators in env_vars, with --handler-env of the backend, or in files: " +
			"docs/compatibility.md, \"Secrets without a provider\"."},
	{"pipeline/v1", []string{"SumoLogicMetricsHandler"},
		"Use a handler of type webhook, the backend's --event-log-file, or remote write of metrics."},
	{"pipeline/v1", []string{"TCPStreamHandler"}, "Use a handler of type tcp_stream."},
	{"bsm/v1", []string{"ServiceComponent", "RuleTemplate"}, "Use aggregates."},
	{"federation/v1", []string{"EtcdReplicator"}, "Carry definitions with lapwing dump and lapwing apply."},
	{"federation/v1", []string{"Cluster"}, "Make one cluster of several members, with a namespace for each part."},
	{"searches/v1", []string{"Search"}, webSettings},
	{"web/v1", []string{"GlobalConfig"}, webSettings},
	{"licensing/v2", []string{"LicenseFile"}, "Nothing needs it: lapwing has no licence."},
}

const webSettings = "Nothing needs them: they are settings of Sensu's web page. lapwing event list has filters."

// InsteadOf says what to use instead of resources of a type. It is "" for types that Sensu lacks, too.
func InsteadOf(apiVersion, typ string) string {
	for _, k := range Kinds {
		if (apiVersion == "" || apiVersion == k.Group) && slices.Contains(k.Types, typ) {
			return k.Instead
		}
	}
	return ""
}

// Command is a command of sensuctl that lapwing lacks. Instead is in the form of the docs, with backquotes around commands.
type Command struct{ Name, Instead string }

// Commands are the commands that lapwing lacks.
var Commands = []Command{
	{"ad", "`lapwing create -f FILE` defines sign-in providers, `lapwing dump ad` lists them"},
	{"bsm", "aggregates: `lapwing aggregate list`"},
	{"datastore", "`lapwing postgres status`, and `lapwing create -f FILE` with a `PostgresConfig`"},
	{"etcd-replicators", "`lapwing dump` and `lapwing apply` carry definitions from one system to others"},
	{"extension", "a handler or mutator with a command: `lapwing handler create --help`"},
	{"federation", "one cluster of several members: `lapwing cluster status`"},
	{"ldap", "`lapwing create -f FILE` defines sign-in providers, `lapwing dump ldap` lists them"},
	{"license", "nothing: lapwing has no licence, and all features work without one"},
	{"oidc", "`lapwing create -f FILE` defines sign-in providers, `lapwing dump oidc` lists them; `lapwing login` signs in"},
	{"search", "`lapwing event list` with `--failing`, `--field-selector` and `--label-selector`"},
	{"secret", "`env_vars`, the backend's `--handler-env`, or files"},
	{"web", "nothing: lapwing's page has no settings of its own"},
}

// InsteadOfCommand says what to use instead of a command of sensuctl, also of its plural. It is "" for other words.
func InsteadOfCommand(word string) string {
	for _, c := range Commands {
		if word == c.Name || word == c.Name+"s" || word+"s" == c.Name {
			return c.Instead
		}
	}
	return ""
}
