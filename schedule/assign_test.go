package schedule

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// takeAssigned returns what was assigned since the last time, each as "check phase cron", or "check -".
func (b *bed) takeAssigned() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []string
	for _, together := range b.assigned {
		slices.SortFunc(together, func(x, y Assignment) int { return cmp.Compare(x.Check, y.Check) })
		for _, a := range together {
			if a.Request == nil {
				got = append(got, a.Check+" -")
				continue
			}
			got = append(got, fmt.Sprintf("%s %s %s", a.Check, a.Phase, a.Request.Config.Cron))
		}
	}
	b.assigned = nil
	return got
}

func TestAssignments(t *testing.T) {
	roundRobin := func(c *resource.CheckConfig) { c.RoundRobin = true }
	unpublished := func(c *resource.CheckConfig) { c.Publish = false }
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil,
			newCheck("haproxy", 60), cronCheck("daily", "@daily"), cronCheck("zoned", "TZ=UTC 0 4 * * *"), cronCheck("every", "@every 90m"),
			newCheck("turns", 10, roundRobin), newCheck("silent", 10, unpublished), cronCheck("broken", "99 * * * *"))
		zone := b.zone
		if len(b.assigned) != 1 {
			t.Errorf("the checks there were came in %d parts", len(b.assigned))
		}
		step := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := b.takeAssigned(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		step("at the start", "daily 0s TZ="+zone+" @daily", "every 35m8s @every 90m", "haproxy 17s ", "zoned 0s TZ=UTC 0 4 * * *")
		b.put(newCheck("haproxy", 10))
		step("changed", "haproxy 7s ")
		b.put(newCheck("haproxy", 10, roundRobin))
		step("round robin", "haproxy -")
		b.put(newCheck("haproxy", 20, roundRobin))
		step("still round robin")
		b.put(newCheck("silent", 20, unpublished))
		step("still not published")
		b.put(newCheck("silent", 20))
		b.delete("default", "zoned")
		synctest.Wait()
		if got := b.takeAssigned(); len(got) != 2 || !slices.Contains(got, "zoned -") {
			t.Errorf("published and deleted: %q", got)
		}
		b.put(cronCheck("daily", "99 * * * *"))
		step("broken", "daily -")
		if r := b.defs.defs[resource.Name{Namespace: "default", Name: "silent"}]; r.Scheduler != "" {
			t.Errorf("the definition was changed: %+v", r)
		}
	})
}

// TestAssignWithoutZone: a cron without a time zone means the backend's. Where that has no name, the backend keeps
// requesting each run.
func TestAssignWithoutZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.zone = ""
		b.put(cronCheck("minutely", "* * * * *"))
		b.put(cronCheck("minutely-utc", "TZ=UTC * * * * *"))
		got := b.until(61 * time.Second)
		if len(got) != 2 {
			t.Fatalf("%d requests", len(got))
		}
		for _, p := range got {
			if name := p.Request.Request.Config.Metadata.Name; p.Assigned != (name == "minutely-utc") {
				t.Errorf("%s: assigned %v", name, p.Assigned)
			}
		}
	})
}

func TestZoneName(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	time.Local = berlin
	if got := zoneName(); got != "Europe/Berlin" {
		t.Errorf("zone %q", got)
	}
	time.Local = time.FixedZone("XYZ", 3600)
	if got := zoneName(); got != "" {
		t.Errorf("zone that nobody knows: %q", got)
	}
	time.Local = time.FixedZone("Local", 0)
	target, err := os.Readlink("/etc/localtime")
	if got := zoneName(); err != nil && got != "" || got != "" && filepath.Base(got) != filepath.Base(target) {
		t.Errorf("zone of the system: %q, its file %q, %v", got, target, err)
	}
}
