package silence

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func bytesOf(words string) (b [][]byte) {
	for _, w := range strings.Fields(words) {
		b = append(b, []byte(w))
	}
	return b
}

func plain(namespace, entity, check string) *Subject {
	return &Subject{Silenceable: resource.Silenceable{Namespace: namespace, Entity: entity, Check: check}}
}

// names returns the silences that apply to a check of the default namespace.
func names(s *config.Store, now time.Time, entity, check, subscriptions string) string {
	var out []string
	for _, one := range NewMatcher(nil, nil).Match(s.Snapshot(), now, plain("default", entity, check), bytesOf(subscriptions)) {
		out = append(out, one.Metadata.Name)
	}
	return strings.Join(out, " ")
}

func TestMatch(t *testing.T) {
	s := testconfig.Store(t)
	now := time.Unix(1_700_000_000, 0)
	if got := names(s, now, "web1", "disk", "linux"); got != "" {
		t.Errorf("without any: %s", got)
	}
	put(t, s, "linux", "disk", nil)
	put(t, s, "linux", "", nil)
	put(t, s, "unix", "*", nil)
	put(t, s, "", "cpu", nil)
	put(t, s, "*", "stars", nil)
	put(t, s, "entity:web1", "", nil)
	put(t, s, "entity:web2", "disk", nil)
	put(t, s, "later", "", func(one *resource.Silenced) { one.Begin = now.Unix() + 1 })
	put(t, s, "now", "", func(one *resource.Silenced) { one.Begin = now.Unix() })
	put(t, s, "over", "", func(one *resource.Silenced) { one.ExpireAt = now.Unix() })
	put(t, s, "nearly", "", func(one *resource.Silenced) { one.ExpireAt = now.Unix() + 1 })
	put(t, s, "a:b", "c", nil)
	put(t, s, "linux", "elsewhere", func(one *resource.Silenced) { one.Metadata.Namespace = "other" })
	for _, tc := range []struct{ entity, check, subscriptions, want string }{
		{"db1", "disk", "linux", "linux:* linux:disk"},
		{"db1", "disk", "linux linux", "linux:* linux:disk"},
		{"db1", "disk", "unix", "unix:*"},
		{"db1", "disk", "unix linux", "linux:* linux:disk unix:*"},
		{"db1", "cpu", "", "*:cpu"},
		{"db1", "stars", "", "*:stars"},
		{"db1", "disk", "", ""},
		{"web1", "disk", "", "entity:web1:*"},
		{"web1", "disk", "entity:web1 linux", "entity:web1:* linux:* linux:disk"},
		{"web2", "disk", "", "entity:web2:disk"},
		{"web2", "cpu", "", "*:cpu"},
		{"web2", "cp", "lin", ""},
		{"db1", "disk", "later", ""},
		{"db1", "disk", "now", "now:*"},
		{"db1", "disk", "over", ""},
		{"db1", "disk", "nearly", "nearly:*"},
		{"db1", "c", "a:b", "a:b:c"},
		{"db1", "b:c", "a", ""}, // the same name, for another subscription and check
		{"db1", "elsewhere", "linux", "linux:*"},
		{"db1", "*", "*", ""},
	} {
		if got := names(s, now, tc.entity, tc.check, tc.subscriptions); got != tc.want {
			t.Errorf("%s/%s with %q: %q, want %q", tc.entity, tc.check, tc.subscriptions, got, tc.want)
		}
	}
	if got := NewMatcher(nil, nil).Match(s.Snapshot(), now, plain("other", "web1", "elsewhere"), bytesOf("linux")); len(got) != 1 {
		t.Errorf("in another namespace: %v", got)
	}
	long := strings.Repeat("x", 300)
	put(t, s, long, long, nil)
	if got := names(s, now, long, long, long); got != long+":"+long {
		t.Errorf("long names: %q", got)
	}
}

func TestCommon(t *testing.T) {
	for _, tc := range []struct {
		check, entity string
		named         bool
		want          string
	}{
		{"a b", "b c", false, "[b]"},
		{"a b b", "b a", false, "[a b]"},
		{"a", "", false, "[]"},
		{"", "a", false, "[]"},
		{"x", "a b", true, "[a b]"},
		{"", "", true, "[]"},
	} {
		if got := fmt.Sprintf("%s", Common(bytesOf(tc.check), strings.Fields(tc.entity), tc.named)); got != tc.want {
			t.Errorf("check %q, entity %q, named %v: %s, want %s", tc.check, tc.entity, tc.named, got, tc.want)
		}
	}
}

// TestMatchIsCheap bounds the cost of a match for each event, among many silences of which none applies.
func TestMatchIsCheap(t *testing.T) {
	s := testconfig.Store(t)
	for i := range 100 {
		put(t, s, fmt.Sprint("entity:host", i), "", nil)
	}
	sn, now := s.Snapshot(), time.Unix(1_700_000_000, 0)
	m, subject, subscriptions := NewMatcher(nil, nil), plain("default", "web1", "disk"), bytesOf("linux unix")
	if n := testing.AllocsPerRun(100, func() {
		if m.Match(sn, now, subject, subscriptions) != nil {
			t.Error("matched")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkMatch measures the silences' part in taking an event, with 10,000 of them.
func BenchmarkMatch(b *testing.B) {
	s := testconfig.Store(b)
	for i := range 10_000 {
		put(b, s, fmt.Sprint("entity:host", i), "", nil)
	}
	sn, now := s.Snapshot(), time.Unix(1_700_000_000, 0)
	m, subject, subscriptions := NewMatcher(nil, nil), plain("default", "web1", "disk"), bytesOf("linux unix")
	b.ReportAllocs()
	for b.Loop() {
		m.Match(sn, now, subject, subscriptions)
	}
}
