package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

func TestJoin(t *testing.T) {
	event := func(n int, deliveries ...Delivery) Outcome {
		id := fmt.Sprint("0-", n, "-0")
		for i := range deliveries {
			d := &deliveries[i]
			d.EventID, d.ID, d.Received = id, id+"/"+d.Handler, int64(n)
		}
		return Outcome{Event: id, Received: int64(n), Deliveries: deliveries}
	}
	to := func(handler string, v Verdict, updated int64, attempts ...Attempt) Delivery {
		return Delivery{Header: delivery.Header{Handler: handler}, Verdict: v, Updated: updated, Attempts: attempts}
	}
	first := []Outcome{
		event(3, to("mail", Waiting, 30, Attempt{At: 29, Result: "failed"})), event(2, to("mail", Delivered, 20)),
	}
	second := []Outcome{
		event(4, to("mail", Delivered, 45)), event(3, to("mail", Delivered, 41, Attempt{At: 40, Result: "ok"}), to("chat", Filtered, 31)),
		event(2, to("page", Delivered, 21)),
	}
	show := func(events []Outcome) string {
		var lines []string
		for _, ev := range events {
			line := ev.Event
			for _, d := range ev.Deliveries {
				line += fmt.Sprint(" ", d.Handler, " ", d.Verdict, " after ", len(d.Attempts))
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "\n")
	}
	want := "0-4-0 mail delivered after 0\n" +
		"0-3-0 mail delivered after 2 chat filtered after 0\n" +
		"0-2-0 mail delivered after 0 page delivered after 0"
	got := show(Query{}.Join(slices.Clone(second), slices.Clone(first), nil))
	if got != want {
		t.Errorf("joined:\n%s\nwant:\n%s", got, want)
	}
	if got := (Query{Limit: 2}).Join(second, first); len(got) != 2 || got[0].Event != "0-4-0" {
		t.Errorf("the newest two:\n%s", show(got))
	}
	if got := (Query{Until: 3}).Join(second, first); len(got) != 2 || got[0].Event != "0-3-0" {
		t.Errorf("without the last event:\n%s", show(got))
	}
	if got := (Query{Limit: 5}).Join(); got == nil || len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
