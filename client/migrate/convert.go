package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
)

// conversion turns resources of a kind that lapwing does not have into resources of one that it has.
type conversion struct {
	to *kind
	// same reports whether a resource of the target may come from an earlier run.
	same func(there *summary) bool
	// convert replaces the body and the name. lost names the parts that cannot be converted; with a reason, nothing is
	// converted.
	convert func(m *migration, o *object) (lost []string, reason, hint string)
}

// apply converts an object, and adds a remark for each lost part.
func (c *conversion) apply(m *migration, o *object) (reason, hint string) {
	label, typ := o.label(), o.kind.Type
	lost, reason, hint := c.convert(m, o)
	if reason != "" {
		return reason, hint
	}
	for _, what := range lost {
		m.rec.remark(Lost, typ, what, "", label)
	}
	o.kind, o.typ = c.to, c.to.Type
	return "", ""
}

const streamType = "tcp_stream"

// maxStreams is the limit of connections for a tcp_stream handler.
const maxStreams = 64

var streamConversion = &conversion{
	to:   handlerKind,
	same: func(there *summary) bool { return text(there.tree, "type") == streamType },
	convert: func(m *migration, o *object) (lost []string, reason, hint string) {
		host, digits, err := net.SplitHostPort(text(o.body, "address"))
		port, numberErr := strconv.ParseUint(digits, 10, 16)
		if err != nil || numberErr != nil || host == "" {
			return nil, "its address is not like host:port", "Define a handler of type tcp_stream by hand."
		}
		stream := map[string]any{}
		if n := integer(o.body, "max_connections"); n > maxStreams {
			lost = append(lost, fmt.Sprintf("lapwing opens at most %d connections for a handler", maxStreams))
			stream["connections"] = json.Number(strconv.Itoa(maxStreams))
		} else if n > 0 {
			stream["connections"] = o.body["max_connections"]
		}
		tls := map[string]any{}
		for theirs, ours := range map[string]string{"tls_ca_cert_file": "ca_file", "tls_cert_file": "cert_file",
			"tls_key_file": "key_file"} {
			if file := text(o.body, theirs); file != "" {
				tls[ours] = file
			}
		}
		if len(tls) > 0 {
			stream["tls"] = tls
		}
		if text(o.body, "min_reconnect_delay")+text(o.body, "max_reconnect_delay") != "" {
			lost = append(lost, "min_reconnect_delay and max_reconnect_delay: lapwing uses its own pauses")
		}
		body := map[string]any{
			"metadata": o.body["metadata"], "type": streamType,
			"socket": map[string]any{"host": host, "port": json.Number(strconv.FormatUint(port, 10))},
		}
		if len(stream) > 0 {
			body["stream"] = stream
		}
		o.rename(m.streamName(o.namespace, o.name))
		body["metadata"] = o.body["metadata"]
		o.body = body
		return lost, "", ""
	},
}

// rename gives an object another name.
func (o *object) rename(name string) {
	if name == o.name {
		return
	}
	meta := maps.Clone(sub(o.body, "metadata"))
	meta["name"] = name
	o.body["metadata"], o.name = meta, name
}

// streamName returns the name of the handler for a TCPStreamHandler. In Sensu a handler may have the same name.
func (m *migration) streamName(namespace, name string) string {
	if m.handlers[namespace+"/"+name] {
		return name + "-tcp-stream"
	}
	return name
}

// useHandlers makes the workflows of a pipeline use the handlers made from TCPStreamHandlers.
func useHandlers(m *migration, o *object) {
	workflows, _ := o.body["workflows"].([]any)
	for _, w := range workflows {
		w, _ := w.(map[string]any)
		h := sub(w, "handler")
		if text(h, "type") == "TCPStreamHandler" && text(h, "api_version") == "pipeline/v1" {
			w["handler"] = map[string]any{
				"api_version": handlerKind.Group, "type": handlerKind.Type, "name": m.streamName(o.namespace, text(h, "name")),
			}
		}
	}
}

// componentConversion makes an aggregate of a component of Sensu's business service monitoring. The component must have
// one rule of Sensu's own template, with thresholds only: other templates are programs.
var componentConversion = &conversion{
	to:   aggregateKind,
	same: func(*summary) bool { return true },
	convert: func(m *migration, o *object) (lost []string, reason, hint string) {
		const byHand = "Define an aggregate by hand: see docs/storms.md."
		rules, _ := o.body["rules"].([]any)
		services := texts(o.body, "services")
		switch {
		case len(rules) != 1:
			return nil, "an aggregate has one rule, and this has " + strconv.Itoa(len(rules)), byHand
		case len(services) != 1:
			return nil, "an aggregate is about one service, and this is about " + strconv.Itoa(len(services)), byHand
		case integer(o.body, "interval") < 1:
			return nil, "an aggregate has an interval, and this has none", byHand
		}
		rule, _ := rules[0].(map[string]any)
		if name := text(rule, "template"); name != "aggregate" {
			return nil, "it uses a rule template that is a program", byHand
		}
		body := map[string]any{
			"metadata": o.body["metadata"], "interval": o.body["interval"],
			// Without any event Sensu's rule warns.
			"min_members": json.Number("1"), "few_status": json.Number("1"),
		}
		result := map[string]any{"entity": services[0], "check": text(rule, "name")}
		if handlers := texts(o.body, "handlers"); len(handlers) > 0 {
			result["handlers"] = o.body["handlers"]
		}
		body["result"] = result
		if lost, reason = thresholds(sub(rule, "arguments"), body); reason != "" {
			return nil, reason, byHand
		}
		if reason := selectors(o.body["query"], body); reason != "" {
			return nil, reason, byHand
		}
		o.body = body
		return lost, "", ""
	},
}

// thresholds converts the arguments of Sensu's rule: it fails if at most that share of the events is OK.
func thresholds(arguments, body map[string]any) (lost []string, reason string) {
	for name, value := range arguments {
		switch name {
		case "critical_threshold", "warning_threshold":
			n, _ := value.(json.Number)
			percent, err := n.Float64()
			if err != nil || percent <= 0 || percent >= 100 {
				return nil, "its " + name + " is not above 0 and below 100"
			}
			left := json.Number(strconv.FormatFloat(100-percent, 'f', -1, 64))
			body[strings.TrimSuffix(name, "_threshold")] = map[string]any{"percent": left}
		case "produce_metrics", "metric_handlers", "set_metric_annotations":
			lost = append(lost, name+": the events of an aggregate have no metrics")
		default:
			return nil, "an aggregate has no argument " + name + " with Sensu's meaning"
		}
	}
	if body["critical"] == nil && body["warning"] == nil {
		return nil, "it has neither critical_threshold nor warning_threshold"
	}
	return lost, ""
}

// selectors converts a query whose parts must all match.
func selectors(query any, body map[string]any) (reason string) {
	fields := map[string]string{"fieldSelector": "field_selector", "labelSelector": "label_selector"}
	parts, _ := query.([]any)
	for _, part := range parts {
		part, _ := part.(map[string]any)
		field, value := fields[text(part, "type")], text(part, "value")
		if field == "" || value == "" {
			return "its query has a part that is no selector"
		}
		if before := text(body, field); before != "" {
			value = before + " && " + value
		}
		body[field] = value
	}
	if body["field_selector"] == nil && body["label_selector"] == nil {
		return "it has no query"
	}
	return ""
}

// ruleTemplates says why rule templates are not copied.
func ruleTemplates(_ *migration, o *object) (reason, hint string) {
	if o.name == "aggregate" {
		return "it comes with Sensu, and components that use it become aggregates", ""
	}
	return "lapwing has no rules that are programs", "Define aggregates, or send the events from a check."
}

// leavePostgres says why a PostgresConfig stays behind. For Sensu the database is the store of events; for lapwing it is
// a copy for reading.
func leavePostgres(*migration, *object) (reason, hint string) {
	return "its database belongs to the source, which may still write there",
		"Define a database of lapwing's own, with lapwing create -f."
}
