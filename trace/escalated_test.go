package trace

import (
	"encoding/json"
	"testing"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// TestEscalated: the trace of an escalation has when the deliveries of its steps got through, also those after its end.
func TestEscalated(t *testing.T) {
	page := func(v Verdict, reason string, steps ...Step) Delivery {
		return Delivery{Header: delivery.Header{ID: "0-1-1/page", Handler: "page"}, Verdict: v, Reason: reason, Steps: steps}
	}
	step := func(name, verdict string, saw ...string) Step {
		st := Step{Kind: StepEscalate, Name: name, Verdict: verdict, At: 1000}
		for i := 0; i < len(saw); i += 2 {
			st.Saw = append(st.Saw, Value{Name: saw[i], Value: saw[i+1]})
		}
		return st
	}
	to := func(step, contact, handler string, number int, v Verdict, at ...int64) Delivery {
		d := Delivery{Header: delivery.Header{ID: "0-1-1/page/" + step + "/" + contact + "/" + handler, Handler: handler, Contact: contact,
			Escalation: "page", Step: number}, Verdict: v, Updated: 9000}
		for _, one := range at {
			d.Attempts = append(d.Attempts, Attempt{At: one})
		}
		return d
	}
	alice := to("1", "alice", "mail", 1, Delivered, 1000, 7000)
	for name, tc := range map[string]struct {
		list []Delivery
		want Delivery
	}{
		"goes on": {[]Delivery{page(Held, "x", step("step 1", Pass, "reached", "alice by mail (rota ops), chat")), alice, to("1", "", "chat", 1, Merged)},
			page(Held, "x", Step{Kind: StepEscalate, Name: "step 1", Verdict: Pass, At: 1000, Reached: 7000,
				Saw: []Value{{"reached", "alice by mail (rota ops), chat"}}})},
		"over before": {[]Delivery{page(Dropped, "no one", step("step 1", "", "notifies", "alice by mail, chat")), to("1", "", "chat", 1, Merged), alice},
			page(Delivered, "no one; got through since: alice by mail at 1970-01-01T00:00:07Z, chat at 1970-01-01T00:00:09Z",
				Step{Kind: StepEscalate, Name: "step 1", Verdict: Pass, At: 1000, Reached: 7000,
					Saw: []Value{{"notifies", "alice by mail, chat"}, {"reached", "alice by mail, chat"}}})},
		"not yet heard": {[]Delivery{page(Held, "x", step("step 1", "")), alice}, page(Held, "x",
			Step{Kind: StepEscalate, Name: "step 1", Verdict: Pass, At: 1000, Reached: 7000, Saw: []Value{{"reached", "alice by mail"}}})},
		"others": {[]Delivery{page(Dropped, "no one", step("step 1", Error)), to("1", "alice", "mail", 1, Dead, 7000), to("1", "bob", "mail", 1, Waiting, 7000),
			to("resolved", "alice", "mail", 0, Delivered, 7000), to("2", "alice", "mail", 2, Delivered, 7000)}, page(Dropped, "no one", step("step 1", Error))},
		"no trace of the delivery": {[]Delivery{page(Delivered, "told", step("step 1", Pass, "reached", "alice by mail"))},
			page(Delivered, "told", step("step 1", Pass, "reached", "alice by mail"))},
	} {
		for range 2 { // what it says once, it does not say again
			Escalated(tc.list)
			got, _ := json.Marshal(tc.list[0])
			if want, _ := json.Marshal(tc.want); string(got) != string(want) {
				t.Errorf("%s:\n got %s\nwant %s", name, got, want)
			}
		}
	}
}
