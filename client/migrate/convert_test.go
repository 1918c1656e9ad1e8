package migrate

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client"
)

const paid = `
{"type":"Handler","metadata":{"name":"both","namespace":"default"},"spec":{"type":"tcp","socket":{"host":"h","port":1}}}
{"type":"TCPStreamHandler","api_version":"pipeline/v1","metadata":{"name":"logstash","namespace":"default","labels":{"a":"b"}},"spec":{"address":"10.0.0.1:4242","tls_ca_cert_file":"/ca.pem","tls_cert_file":"/etc/lapwing/secrets/c.pem","tls_key_file":"/etc/lapwing/secrets/k.pem","max_connections":10,"min_reconnect_delay":"10ms"}}
{"type":"TCPStreamHandler","api_version":"pipeline/v1","metadata":{"name":"both","namespace":"default"},"spec":{"address":"[::1]:5","max_connections":100}}
{"type":"TCPStreamHandler","api_version":"pipeline/v1","metadata":{"name":"broken","namespace":"default"},"spec":{"address":"nowhere"}}
{"type":"Pipeline","metadata":{"name":"p","namespace":"default"},"spec":{"workflows":[{"name":"w1","handler":{"api_version":"pipeline/v1","type":"TCPStreamHandler","name":"logstash"}},{"name":"w2","handler":{"api_version":"pipeline/v1","type":"TCPStreamHandler","name":"both"}},{"name":"w3","handler":{"api_version":"core/v2","type":"Handler","name":"both"}}]}}
{"type":"Pipeline","metadata":{"name":"sumo","namespace":"default"},"spec":{"workflows":[{"name":"w","handler":{"api_version":"pipeline/v1","type":"SumoLogicMetricsHandler","name":"s"}}]}}
{"type":"RuleTemplate","api_version":"bsm/v1","metadata":{"name":"aggregate","namespace":"default"},"spec":{"eval":"1"}}
{"type":"RuleTemplate","api_version":"bsm/v1","metadata":{"name":"own","namespace":"default"},"spec":{"eval":"1"}}
{"type":"ServiceComponent","api_version":"bsm/v1","metadata":{"name":"web","namespace":"default"},"spec":{"services":["shop"],"interval":60,"handlers":["both"],"query":[{"type":"fieldSelector","value":"webserver in event.check.subscriptions"},{"type":"labelSelector","value":"region == eu"},{"type":"fieldSelector","value":"event.check.name == http"}],"rules":[{"template":"aggregate","name":"share","arguments":{"critical_threshold":70,"warning_threshold":90.5,"produce_metrics":true}}]}}
{"type":"ServiceComponent","api_version":"bsm/v1","metadata":{"name":"program","namespace":"default"},"spec":{"services":["shop"],"interval":60,"query":[{"type":"fieldSelector","value":"event.check.name == http"}],"rules":[{"template":"own","name":"x","arguments":{}}]}}
{"type":"ServiceComponent","api_version":"bsm/v1","metadata":{"name":"counts","namespace":"default"},"spec":{"services":["shop"],"interval":60,"query":[{"type":"fieldSelector","value":"event.check.name == http"}],"rules":[{"template":"aggregate","name":"x","arguments":{"critical_count":2}}]}}
{"type":"ServiceComponent","api_version":"bsm/v1","metadata":{"name":"timed","namespace":"default"},"spec":{"services":["shop"],"cron":"* * * * *","query":[{"type":"fieldSelector","value":"event.check.name == http"}],"rules":[{"template":"aggregate","name":"x","arguments":{"critical_threshold":2}}]}}
`

// refusable are resources that a server refuses, one of each kind that a dry run can check.
const refusable = `
{"type":"CheckConfig","metadata":{"name":"never","namespace":"default"},"spec":{"command":"x"}}
{"type":"Handler","metadata":{"name":"none","namespace":"default"},"spec":{"type":"tcp"}}
{"type":"EventFilter","metadata":{"name":"maybe","namespace":"default"},"spec":{"action":"perhaps","expressions":["true"]}}
{"type":"Mutator","metadata":{"name":"m","namespace":"default"},"spec":{"type":"magic","command":"x"}}
{"type":"HookConfig","metadata":{"name":"h","namespace":"default"},"spec":{"timeout":5}}
{"type":"Asset","metadata":{"name":"a","namespace":"default"},"spec":{"url":"http://x/a.tgz","sha512":"12"}}
{"type":"Role","metadata":{"name":"r","namespace":"default"},"spec":{"rules":[]}}
{"type":"Pipeline","metadata":{"name":"q","namespace":"default"},"spec":{"workflows":[{"name":"w"}]}}
`

// TestDryRunSaysWhatTheRunDoes compares the two reports for resources that are refused, converted or left out.
func TestDryRunSaysWhatTheRunDoes(t *testing.T) {
	to := start(t)
	opts := to.options(fromFile(t, paid+refusable))
	opts.DryRun = true
	dry := copyTo(t, opts)
	opts.DryRun = false
	real := copyTo(t, opts)
	for _, r := range []*Report{dry, real} {
		for i := range r.Kinds {
			r.Kinds[i].Extra, r.Kinds[i].Equal = 0, 0
		}
	}
	if !slices.Equal(dry.Kinds, real.Kinds) || !reflect.DeepEqual(dry.Remarks, real.Remarks) ||
		!reflect.DeepEqual(dry.Changes, real.Changes) {
		t.Errorf("they differ; the dry run:\n%s\nthe run:\n%s", printed(t, dry), printed(t, real))
	}
	for _, typ := range []string{"CheckConfig", "Handler", "EventFilter", "Mutator", "HookConfig", "Pipeline"} {
		if dry.remark(Refused, typ) == nil {
			t.Errorf("the dry run refuses no %s:\n%s", typ, printed(t, dry))
		}
	}
	again := copyTo(t, opts)
	if again.sent() != 0 {
		t.Errorf("a second run sends something:\n%s", printed(t, again))
	}
}

func TestConversions(t *testing.T) {
	to := start(t)
	r := copyTo(t, to.options(fromFile(t, paid)))
	if got := r.of(t, "tcp-stream-handlers"); got.Created != 2 || got.Left != 1 {
		t.Errorf("TCPStreamHandlers: %+v", got)
	}
	h := to.get(t, client.Handlers.Path("default", "logstash"))
	stream := sub(h, "stream")
	if text(h, "type") != "tcp_stream" || text(sub(h, "socket"), "host") != "10.0.0.1" || integer(sub(h, "socket"), "port") != 4242 ||
		integer(stream, "connections") != 10 || text(sub(stream, "tls"), "ca_file") != "/ca.pem" ||
		text(sub(sub(h, "metadata"), "labels"), "a") != "b" {
		t.Errorf("the handler: %v", h)
	}
	if h := to.get(t, client.Handlers.Path("default", "both-tcp-stream")); integer(sub(h, "stream"), "connections") != maxStreams {
		t.Errorf("the handler with the name of another: %v", h)
	}
	if h := to.get(t, client.Handlers.Path("default", "both")); text(h, "type") != "tcp" {
		t.Errorf("the other: %v", h)
	}
	workflows, _ := to.get(t, client.Pipelines.Path("default", "p"))["workflows"].([]any)
	var names []string
	for _, w := range workflows {
		ref := sub(w.(map[string]any), "handler")
		names = append(names, text(ref, "api_version")+"."+text(ref, "type")+"."+text(ref, "name"))
	}
	if want := "core/v2.Handler.logstash core/v2.Handler.both-tcp-stream core/v2.Handler.both"; strings.Join(names, " ") != want {
		t.Errorf("the pipeline's handlers are %q", names)
	}
	if m := r.remark(Refused, "Pipeline"); m == nil || !slices.Equal(m.Names, []string{"dump:7: default/sumo"}) {
		t.Errorf("a pipeline with a handler that lapwing has not: %+v", m)
	}

	a := to.get(t, client.Aggregates.Path("default", "web"))
	result := sub(a, "result")
	if text(a, "field_selector") != "webserver in event.check.subscriptions && event.check.name == http" ||
		text(a, "label_selector") != "region == eu" ||
		integer(sub(a, "critical"), "percent") != 30 || sub(a, "warning")["percent"] == nil || integer(a, "interval") != 60 ||
		text(result, "entity") != "shop" || text(result, "check") != "share" || !slices.Equal(texts(result, "handlers"), []string{"both"}) {
		t.Errorf("the aggregate: %v", a)
	}
	if got := r.of(t, "service-components"); got.Created != 1 || got.Left != 3 {
		t.Errorf("components: %+v\n%s", got, printed(t, r))
	}
	if m := r.remark(Lost, "ServiceComponent"); m == nil || !strings.Contains(m.Reason, "produce_metrics") {
		t.Errorf("what is lost of a component: %+v", m)
	}
}

func TestCommandsThatNeedTheEnvironment(t *testing.T) {
	to := start(t)
	opts := to.options(fromFile(t, `
{"type":"Handler","metadata":{"name":"chat","namespace":"default"},"spec":{"type":"pipe","command":"sensu-slack-handler"}}
{"type":"Handler","metadata":{"name":"mail","namespace":"default"},"spec":{"type":"pipe","command":"mail -s x ${MAIL_TO} $HOME $OWN","env_vars":["OWN=1"]}}
{"type":"Handler","metadata":{"name":"fine","namespace":"default"},"spec":{"type":"pipe","command":"sensu-slack-handler --webhook-url $URL","env_vars":["URL=x"]}}
{"type":"Mutator","metadata":{"name":"enrich","namespace":"default"},"spec":{"command":"enrich $CMDB_TOKEN"}}
{"type":"Handler","metadata":{"name":"safe","namespace":"default"},"spec":{"type":"pipe","command":"x $KEY","secrets":[{"name":"KEY","secret":"k"}]}}
`))
	opts.DryRun = true
	r := copyTo(t, opts)
	if m := r.remark(Noted, "Handler"); m == nil || !slices.Equal(m.Names,
		[]string{"default/chat $SLACK_WEBHOOK_URL", "default/mail $MAIL_TO", "default/safe $KEY (one of its secrets)"}) || !strings.Contains(m.Hint, "--handler-env") {
		t.Errorf("handlers: %+v", m)
	}
	if m := r.remark(Noted, "Mutator"); m == nil || !slices.Equal(m.Names, []string{"default/enrich $CMDB_TOKEN"}) {
		t.Errorf("mutators: %+v", m)
	}
}

// TestUnsupported: what would be a false all-clear, and what to do about resources that lapwing does not have. A second run says it too.
func TestUnsupported(t *testing.T) {
	to := start(t)
	opts := to.options(fromFile(t, `
{"type":"CheckConfig","metadata":{"name":"api","namespace":"default"},"spec":{"command":"x","interval":60,"secrets":[{"name":"TOKEN","secret":"token"}]}}
{"type":"Handler","metadata":{"name":"page","namespace":"default"},"spec":{"type":"pipe","command":"x","secrets":[{"name":"TOKEN","secret":"token"}]}}
{"type":"Secret","api_version":"secrets/v1","metadata":{"name":"token","namespace":"default"},"spec":{"id":"TOKEN","provider":"env"}}
{"type":"Gadget","api_version":"gadgets/v9","metadata":{"name":"g"},"spec":{}}
{"type":"ChekConfig","api_version":"core/v2","metadata":{"name":"disk","namespace":"default"},"spec":{"command":"x","interval":60}}
{"type":"Handler","api_version":"core/v1","metadata":{"name":"old"},"spec":{"type":"pipe","command":"x"}}
{"type":"ChekConfig","api_version":"core/v2","metadata":{"name":"mem","namespace":"default"},"spec":{"command":"x","interval":60}}
`))
	for _, run := range []string{"first", "second"} {
		r := copyTo(t, opts)
		for _, want := range []struct {
			severity                 Severity
			typ, reason, hint, names string
		}{
			{Lost, "CheckConfig", "it does not run", "env_vars", "default/api"},
			{Lost, "Handler", "dead letters", "--handler-env", "default/page"},
			{Left, "Secret", "no resources of this kind", "Secrets without a provider", "default/token"},
			{Left, "gadgets/v9.Gadget", "no resources of this kind", "docs/compatibility.md", "dump:5: g"},
			{Doubtful, "core/v2.ChekConfig", "there is no such kind (CheckConfig?), so these resources are not copied", "Correct the file",
				"dump:6: default/disk, dump:8: default/mem"},
			{Doubtful, "core/v1.Handler", "(core/v2.Handler?)", "Correct the file", "dump:7: old"},
		} {
			m := r.remark(want.severity, want.typ)
			if m == nil || !strings.Contains(m.Reason, want.reason) || !strings.Contains(m.Hint, want.hint) ||
				m.Count != len(m.Names) || strings.Join(m.Names, ", ") != want.names {
				t.Errorf("%s run: %s: %+v", run, want.typ, m)
			}
		}
	}
}
