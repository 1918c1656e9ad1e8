package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gathered returns a member's metrics that are not 0, a line each.
func gathered(t *testing.T, c *Cluster) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	newMetrics(registry, c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "lapwing_cluster_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if v := m.GetGauge().GetValue(); v != 0 {
				lines = append(lines, fmt.Sprint(name, " ", v))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		for i, info := range []Info{
			{Version: "1", Revision: 10, Folded: []uint64{5, 5}, DiskFree: 1},
			{Version: "1", Revision: 7, Folded: []uint64{4, 9}, DiskFree: 2},
			{Version: "2"},
		} {
			n.nodes[i].mu.Lock()
			n.nodes[i].info = info
			n.nodes[i].mu.Unlock()
		}
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		time.Sleep(time.Minute)
		got := gathered(t, n.nodes[0].Cluster)
		want := strings.Join([]string{
			"definitions_lag node-b 3", "disk_free_bytes node-b 2", "fold_lag_messages node-a 4",
			"fold_lag_messages node-b 1", "leased 1", "member_up node-a 1", "member_up node-b 1", "member_up node-c 1",
			"members 3", "size 3",
		}, "\n")
		differ, rest := "", []string{}
		for line := range strings.Lines(got) {
			if strings.HasPrefix(line, "versions_differ_seconds ") {
				differ = line
				continue
			}
			rest = append(rest, strings.TrimSuffix(line, "\n"))
		}
		if strings.Join(rest, "\n") != want {
			t.Errorf("metrics:\n%s\nwant:\n%s", got, want)
		}
		if differ == "" {
			t.Errorf("the versions differ, and no metric says so:\n%s", got)
		}

		n.nodes[2].kill()
		n.within(10*time.Second, "two members", n.agreed(0, 1))
		got = gathered(t, n.nodes[0].Cluster)
		if !strings.Contains(got, "member_away_seconds node-c ") || strings.Contains(got, "versions_differ") {
			t.Errorf("metrics after a member was killed:\n%s", got)
		}
		n.nodes[0].Forget("c")
		if got := gathered(t, n.nodes[0].Cluster); strings.Contains(got, "node-c") {
			t.Errorf("a forgotten member has metrics:\n%s", got)
		}
		n.nodes[2].start()
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		if got := gathered(t, n.nodes[0].Cluster); !strings.Contains(got, "member_up node-c 1") {
			t.Errorf("a member that came back has no metrics:\n%s", got)
		}
	})
}
