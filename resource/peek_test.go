package resource

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

// requirePeek fails unless the views of an encoded event agree with its decoded form.
func requirePeek(t *testing.T, b []byte, e *Event) {
	t.Helper()
	view, err := PeekEvent(b)
	if err != nil {
		t.Fatal(err)
	}
	if view.Timestamp != e.Timestamp || view.Sequence != e.Sequence || !bytes.Equal(view.ID, e.ID) ||
		view.Pipelines != (len(e.Pipelines) > 0) {
		t.Errorf("PeekEvent: %+v\nevent: %+v", view, e)
	}
	if (view.Entity != nil) != (e.Entity != nil) || (view.Check != nil) != (e.Check != nil) ||
		(view.Metrics != nil) != (e.Metrics != nil) {
		t.Fatalf("PeekEvent: %+v\nevent: %+v", view, e)
	}
	if view.Metrics != nil {
		var metrics Metrics
		if err := metrics.UnmarshalProto(view.Metrics); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(metrics.AppendProto(nil), e.Metrics.AppendProto(nil)) {
			t.Errorf("metrics: %+v, want %+v", metrics, e.Metrics)
		}
	}
	if view.Entity != nil {
		got, err := PeekEntity(view.Entity)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Name) != e.Entity.Metadata.Name || string(got.Namespace) != e.Entity.Metadata.Namespace ||
			string(got.Class) != e.Entity.EntityClass || got.LastSeen != e.Entity.LastSeen {
			t.Errorf("PeekEntity: %+v\nentity: %+v", got, e.Entity)
		}
		subscriptions, err := AppendEntitySubscriptions(nil, view.Entity)
		requireStrings(t, subscriptions, err, e.Entity.Subscriptions)
	}
	if view.Check != nil {
		got, err := PeekCheck(view.Check)
		if err != nil {
			t.Fatal(err)
		}
		c := e.Check
		want := CheckView{
			Name:            got.Name, // compared below, where nil equals empty
			Namespace:       got.Namespace,
			ProxyEntityName: got.ProxyEntityName,
			Status:          c.Status,
			Executed:        c.Executed,
			Issued:          c.Issued,
			TTL:             c.TTL,
			MaxOutputSize:   c.MaxOutputSize,
			Interval:        c.Interval,
			Timeout:         c.Timeout,
			LowFlap:         c.LowFlapThreshold,
			HighFlap:        c.HighFlapThreshold,
			Handlers:        len(c.Handlers),
			MetricHandlers:  len(c.OutputMetricHandlers),
			Pipelines:       len(c.Pipelines),
			Silenced:        len(c.Silenced),
			RoundRobin:      c.RoundRobin,
			IsSilenced:      c.IsSilenced,
			OutputLen:       len(c.Output),
			rules:           got.rules, // the tests of Validate compare them
		}
		if !reflect.DeepEqual(got, want) || string(got.Name) != c.Metadata.Name ||
			string(got.Namespace) != c.Metadata.Namespace || string(got.ProxyEntityName) != c.ProxyEntityName {
			t.Errorf("PeekCheck: %+v\ncheck: %+v", got, c)
		}
		subscriptions, err := AppendCheckSubscriptions(nil, view.Check)
		requireStrings(t, subscriptions, err, c.Subscriptions)
	}
	if e.Check != nil && !slices.Equal(PeekSilenced(b), e.Check.Silenced) {
		t.Errorf("PeekSilenced: %q, want %q", PeekSilenced(b), e.Check.Silenced)
	}
	requireWithoutEntity(t, b, e)
}

func requireStrings(t *testing.T, got [][]byte, err error, want []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(got, want, func(g []byte, w string) bool { return string(g) == w }) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func requireWithoutEntity(t *testing.T, b []byte, e *Event) {
	t.Helper()
	rest, err := AppendEventWithoutEntity([]byte("before"), b)
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := bytes.CutPrefix(rest, []byte("before"))
	if !ok {
		t.Fatal("AppendEventWithoutEntity changed what was there")
	}
	var got Event
	if err := got.UnmarshalProto(rest); err != nil {
		t.Fatal(err)
	}
	want := *e
	want.Entity = nil
	if !bytes.Equal(got.AppendProto(nil), want.AppendProto(nil)) {
		t.Errorf("without entity: %+v\nevent: %+v", got, e)
	}
}

func TestPeekFrames(t *testing.T) {
	for _, f := range readFrames(t, "protobuf") {
		if f.typ != "event" && f.typ != "keepalive" {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			var e Event
			if err := e.UnmarshalProto(f.payload); err != nil {
				t.Fatal(err)
			}
			requirePeek(t, f.payload, &e)
		})
	}
}

func TestPeekEveryField(t *testing.T) {
	var e Event
	fill(reflect.ValueOf(&e).Elem(), new(int))
	requirePeek(t, e.AppendProto(nil), &e)
	requirePeek(t, nil, new(Event))
	empty := Event{Entity: &Entity{}, Check: &Check{}, Metrics: &Metrics{}}
	requirePeek(t, empty.AppendProto(nil), &empty)
}

func TestPeekErrors(t *testing.T) {
	event := func(b []byte) error { _, err := PeekEvent(b); return err }
	check := func(b []byte) error { _, err := PeekCheck(b); return err }
	entity := func(b []byte) error { _, err := PeekEntity(b); return err }
	subscriptions := func(b []byte) error { _, err := AppendCheckSubscriptions(nil, b); return err }
	without := func(b []byte) error { _, err := AppendEventWithoutEntity(nil, b); return err }
	tests := []struct {
		name string
		peek func([]byte) error
		in   string
		want string
	}{
		{"cut event", event, "\x08", "decode Event field 1: unexpected EOF"},
		{"two entities", event, "\x12\x00\x12\x00", "decode Event field 2: sub-message given twice"},
		{"field 0", event, "\x00\x00", "decode Event: invalid field number"},
		{"cut check", check, "\x0a\x05", "decode Check field 1: unexpected EOF"},
		{"two names of a check", check, "\xb2\x02\x03\x0a\x01a\xb2\x02\x03\x0a\x01b", "decode Check field 38: sub-message given twice"},
		{"cut metadata of a check", check, "\xb2\x02\x01\x0a", "decode ObjectMeta field 1: unexpected EOF"},
		{"cut entity", entity, "\x28", "decode Entity field 5: unexpected EOF"},
		{"two names of an entity", entity, "\x72\x00\x72\x00", "decode Entity field 14: sub-message given twice"},
		{"cut metadata of an entity", entity, "\x72\x01\x0a", "decode ObjectMeta field 1: unexpected EOF"},
		{"cut subscriptions", subscriptions, "\x5a\x05", "decode Check field 11: unexpected EOF"},
		{"cut before removal", without, "\x12\x05", "decode Event field 2: unexpected EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.peek([]byte(tt.in)); err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestPeekDoesNotAllocate(t *testing.T) {
	e := typicalEvent(t)
	e.Check.RuntimeAssets, e.Check.EnvVars = []string{"sensu-plugins/sensu-plugins-cpu-checks-of-some-version"}, []string{"A=b"}
	e.Check.ProxyEntityName = "router-with-quite-a-long-name.example.com"
	e.Check.ProxyRequests = &ProxyRequests{EntityAttributes: []string{"entity.entity_class == 'proxy'"}, Splay: true, SplayCoverage: 90}
	e.Check.OutputMetricFormat = "graphite_plaintext"
	e.Pipelines = []ResourceReference{{Name: "p", Type: "Pipeline", APIVersion: "core/v2"}}
	b := e.AppendProto(nil)
	dst := make([]byte, 0, len(b))
	n := testing.AllocsPerRun(100, func() {
		view, err := PeekEvent(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := PeekCheck(view.Check); err != nil {
			t.Fatal(err)
		}
		if _, err := PeekEntity(view.Entity); err != nil {
			t.Fatal(err)
		}
		if err := encoded(b).Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := AppendEventWithoutEntity(dst, b); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
