package broker

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestStuckStream plays writes that time out every 2 s.
func TestStuckStream(t *testing.T) {
	healthy := streamView{Leader: "a", Leads: true, Majority: true, Last: 7}
	begin := time.Unix(1000, 0)
	play := func(name string, seconds int, view func(second int) streamView, want map[int]remedy) {
		t.Helper()
		var s stuckStream
		for second := 0; second <= seconds; second += 2 {
			expected := want[second]
			if expected == "" {
				expected = wait
			}
			if got := s.judge(begin.Add(time.Duration(second)*time.Second), begin, view(second)); got != expected {
				t.Errorf("%s: after %d s it says %q, want %q", name, second, got, expected)
			}
		}
	}
	play("the own leader is stuck", 62, func(int) streamView { return healthy },
		map[int]remedy{20: stepDown, 40: reopen, 62: stepDown})
	play("another leader is stuck", 100, func(int) streamView {
		v := healthy
		v.Leads = false
		return v
	}, map[int]remedy{20: stepDown})
	play("no leader", 100, func(int) streamView {
		v := healthy
		v.Leader, v.Leads = "", false
		return v
	}, nil)
	play("no majority", 100, func(int) streamView {
		v := healthy
		v.Majority = false
		return v
	}, nil)
	play("the majority comes back", 52, func(second int) streamView {
		v := healthy
		v.Majority = second >= 30
		return v
	}, map[int]remedy{48: stepDown}) // 20 s after the last look without one
	play("others commit", 100, func(second int) streamView {
		v := healthy
		v.Last += uint64(second / 10)
		return v
	}, nil)
	play("the leader has changed, and is stuck too", 42, func(second int) streamView {
		v := healthy
		if v.Leads = second > 20; v.Leads {
			v.Leader = "b"
		}
		return v
	}, map[int]remedy{20: stepDown, 42: reopen})
}

// TestStuckStreamOfAnEarlierOutage checks that a write that was answered in between starts the count anew.
func TestStuckStreamOfAnEarlierOutage(t *testing.T) {
	v := streamView{Leader: "a", Leads: true, Majority: true}
	var s stuckStream
	at := func(second int) time.Time { return time.Unix(int64(1000+second), 0) }
	s.judge(at(0), at(0), v)
	if got := s.judge(at(20), at(0), v); got != stepDown {
		t.Errorf("first outage: %q", got)
	}
	if got := s.judge(at(45), at(30), v); got != wait {
		t.Errorf("second outage, after 15 s: %q", got)
	}
	if got := s.judge(at(50), at(30), v); got != stepDown {
		t.Errorf("second outage, after 20 s: %q", got)
	}
}

// TestRoom: a directory on a disk with space has room, and the look leaves nothing behind.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	if err := room(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	if err := room(filepath.Join(dir, "missing")); err == nil {
		t.Error("a directory that is missing has room")
	}
}
