//go:build linux

package agent

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestParseLimits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]proc.Limits{
		"": {}, "cpu=0.5": {CPU: 0.5}, "memory=256M, processes=50": {Memory: 256 << 20, Processes: 50}, "memory=1000 cpu=2": {Memory: 1000, CPU: 2}, "memory=2G": {Memory: 2 << 30},
	} {
		if got, err := ParseLimits(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"cpu", "cpu=0", "cpu=NaN", "memory=M", "memory=-1", "memory=1T", "processes=0", "disk=1"} {
		if got, err := ParseLimits(text); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

func TestAgentRecordsUsage(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, func(o *Options) { o.RecordUsage = true })
	config := shellCheck("busy", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done")
	ev := s.request(&resource.CheckRequest{Config: config, Issued: 1})
	cpu, err := strconv.Atoi(ev.Metadata.Annotations[cpuAnnotation])
	if err != nil || cpu < 5 || cpu > 60_000 {
		t.Errorf("used %q ms, %v", ev.Metadata.Annotations[cpuAnnotation], err)
	}
	if memory, err := strconv.Atoi(ev.Metadata.Annotations[memoryAnnotation]); err != nil || memory < 100<<10 {
		t.Errorf("used %q bytes, %v", ev.Metadata.Annotations[memoryAnnotation], err)
	}
	config.Metadata.Annotations = map[string]string{limitsAnnotation: "memory=1G"}
	if ev = s.request(&resource.CheckRequest{Config: config, Issued: 2}); ev.Check.Status != 3 || !strings.Contains(ev.Check.Output, "no control groups") {
		t.Errorf("limited without groups: got %+v", ev.Check)
	}
	config.Metadata.Annotations[limitsAnnotation] = "memory=much"
	if ev = s.request(&resource.CheckRequest{Config: config, Issued: 3}); ev.Check.Status != 3 || !strings.Contains(ev.Check.Output, "memory=much") {
		t.Errorf("limit that cannot be read: got %+v", ev.Check)
	}
}
