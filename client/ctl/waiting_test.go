package ctl

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestWaitingForAWorker shows what is due: an older time than now may come from another clock.
func TestWaitingForAWorker(t *testing.T) {
	now := time.Now()
	var out bytes.Buffer
	s := &invocation{settings: &settings{}, out: &out, errOut: &out}
	due := client.Waiting{
		Handler: "stuck", Retrying: 2, Parked: client.ClassCounts{Total: 2, Change: 2}, Running: 1, Next: now.UnixMilli(),
		Deliveries: []client.Parked{
			{Entity: "web1", Check: "disk", Status: 2, For: "worker", Next: now.UnixMilli(), Attempts: 1, Error: "exit status 75"},
			{Entity: "web2", Check: "disk", Status: 2, For: "worker", Group: "rack=r1", Next: now.UnixMilli(), Attempts: 1},
			{Entity: "web3", Check: "disk", Status: 2, For: "attempt", Next: now.Add(time.Hour).UnixMilli(), Attempts: 1},
		},
	}
	later := client.Waiting{Handler: "later", Next: now.Add(time.Hour).UnixMilli()}
	none := client.Waiting{Handler: "none", Disk: client.ClassCounts{Total: 1}}
	if err := (&waitingBlocks{list: []client.Waiting{due, later, none}, limit: 20}).show(s); err != nil {
		t.Fatal(err)
	}
	if err := waitingTable([]client.Waiting{due, later, none}, false).show(s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`Next Turn: +now\n`, `Next Turn: +\S+ .*\(in (1h|59m)\)\n`, `Next Turn: +N/A\n`,
		`web1 +disk +CRITICAL +free worker +now +1 +exit status 75`, `web2 +disk +CRITICAL +free worker +now +1`,
		`web3 +disk +CRITICAL +next attempt +in (1h|59m) +1`,
		`stuck +2 +2 +0 +0 +1 +now`, `later +0 +0 +0 +0 +0 +in (1h|59m)`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("there is no %q in\n%s", want, &out)
		}
	}
}
