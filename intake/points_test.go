package intake

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// heap is a Sink that keeps all points.
type heap struct{ got []string }

func (h *heap) Put(namespace, entity, check string, points []resource.MetricPoint) {
	for _, p := range points {
		h.got = append(h.got, fmt.Sprint(namespace, "/", entity, "/", check, " ", p.Name, p.Tags, "=", p.Value, "@", p.Timestamp))
	}
}

func measured(entity string, points ...resource.MetricPoint) *resource.Event {
	now := time.Now().Unix()
	return &resource.Event{
		Timestamp: now, ID: resource.NewEventID(), Metrics: &resource.Metrics{Handlers: []string{"tsdb"}, Points: points},
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{Namespace: "default", Name: entity}, EntityClass: resource.EntityProxyClass},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: "net"}, Interval: 10, Executed: now, Output: "ok",
		},
	}
}

// TestPointsReachTheSink: the sink gets the points of each logged event once, from agents and users, with the event's
// entity.
func TestPointsReachTheSink(t *testing.T) {
	var sink heap
	i := IntakeOf(t, 2, Options{Metrics: &sink})
	want := func(when string, points ...string) {
		t.Helper()
		if !reflect.DeepEqual(sink.got, points) {
			t.Errorf("%s: the sink has %q, want %q", when, sink.got, points)
		}
		sink.got = nil
	}
	point := resource.MetricPoint{Name: "rx", Value: 1.5, Timestamp: 7, Tags: []resource.MetricTag{{Name: "if", Value: "eth0"}}}
	src := Source{Namespace: "default", Agent: "web1", Prompt: true}
	send := func(ev *resource.Event) error { return i.Event(t.Context(), ev.AppendProto(nil), src) }

	if err := send(measured("router", point)); !errors.Is(err, ErrMustWait) { // its entity must be made first
		t.Errorf("a proxy entity was made at once: %v", err)
	}
	want("an event that has to wait")
	src.Prompt = false
	if err := send(measured("router", point, resource.MetricPoint{Name: "tx"})); err != nil {
		t.Fatal(err)
	}
	want("an agent's event", "default/router/net rx[{if eth0}]=1.5@7", "default/router/net tx[]=0@0")
	src.Prompt = true
	proxied := measured("web1", point)
	proxied.Check.ProxyEntityName = "router"
	if err := send(proxied); err != nil {
		t.Fatal(err)
	}
	want("one about a proxy entity", "default/router/net rx[{if eth0}]=1.5@7")
	if err := i.Submit(t.Context(), measured("router", point)); err != nil {
		t.Fatal(err)
	}
	want("a user's event", "default/router/net rx[{if eth0}]=1.5@7")
	if err := i.Submit(t.Context(), measured("router")); err != nil {
		t.Fatal(err)
	}
	want("an event without points")

	if err := i.opts.Log.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(send(measured("router", point)), i.Submit(t.Context(), measured("router", point))); err == nil {
		t.Error("the log took an event after its end")
	}
	want("events that the log did not take")
}

// TestPointsAreNotDecodedWithoutASink: without a sink an event's points are not read, so invalid ones do no harm.
func TestPointsAreNotDecodedWithoutASink(t *testing.T) {
	points := make([]resource.MetricPoint, 100)
	for n := range points {
		points[n] = resource.MetricPoint{Name: fmt.Sprint("series_", n), Value: float64(n)}
	}
	encoded := measured("web1", points...).Metrics.AppendProto(nil)
	rec := eventlog.Record{Namespace: "default", Entity: "web1"}
	var none Intake
	if n := testing.AllocsPerRun(100, func() { none.putEncodedPoints(&rec, encoded) }); n > 0 {
		t.Errorf("%v allocations without a sink", n)
	}

	var lines bytes.Buffer
	broken := encoded[:len(encoded)-1]
	for _, sink := range []Sink{nil, new(heap)} {
		lines.Reset()
		i := &Intake{opts: Options{Metrics: sink}, rare: rarelog.New(slog.New(slog.NewTextHandler(&lines, nil)))}
		i.putEncodedPoints(&rec, broken)
		if said := strings.Contains(lines.String(), "cannot decode the metrics"); said != (sink != nil) {
			t.Errorf("with the sink %v: logged %q", sink, lines.String())
		}
	}
}
