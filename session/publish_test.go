package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestForLapwing sends a request with a header that only Sensu agents may get, and then a schedule.
func TestForLapwing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, 0)
		calls := 0
		s.opts.ForLapwing = func(q *resource.CheckRequest) *resource.CheckRequest {
			calls++
			bare := *q
			bare.Assets = []resource.Asset{{URL: q.Assets[0].URL}}
			return &bare
		}
		tick := newTick("disk", time.Now(), "linux")
		tick.Request.Assets = []resource.Asset{{URL: "https://origin", Headers: map[string]string{"Token": "secret"}}}
		stock, other := s.join(t, "stock", false, "linux"), s.join(t, "stock-2", false, "linux")
		ours, more := s.join(t, "ours", true, "linux"), s.join(t, "ours-2", true, "linux")
		s.Publish(tick)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("it was made %d times, want once for all", calls)
		}
		for _, test := range []struct {
			name  string
			agent *peer
			want  string
		}{{"stock", stock, "secret"}, {"stock", other, "secret"}, {"lapwing", ours, ""}, {"lapwing", more, ""}} {
			var requests []resource.CheckRequest
			for _, a := range test.agent.take() {
				if a.typ != wire.TypeCheckRequest {
					continue
				}
				var q resource.CheckRequest
				if err := wire.Decode(a.payload, wire.Protobuf, &q); err != nil {
					t.Fatal(err)
				}
				requests = append(requests, q)
			}
			if len(requests) != 1 || requests[0].Assets[0].URL != "https://origin" || requests[0].Assets[0].Headers["Token"] != test.want {
				t.Errorf("%s agent was asked %+v, want the token %q", test.name, requests, test.want)
			}
		}

		a := newAssignment(&schedule.Assignment{Check: "disk", Request: tick.Request}, s.opts.ForLapwing(tick.Request))
		var q resource.CheckRequest
		if err := q.UnmarshalProto(a.entry(0, 0).Request); err != nil || q.Assets[0].URL != "https://origin" || q.Assets[0].Headers != nil {
			t.Errorf("the schedule has %+v, %v", q.Assets, err)
		}
	})
}
