package eventlog

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueue adds appends to a queue and removes them, in any order, and compares it with a slice.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q queue
	var want, gone []*blockedAppend
	for range 10_000 {
		switch random.IntN(4) {
		case 0, 1:
			b := &blockedAppend{}
			q.push(b)
			want = append(want, b)
		case 2:
			if len(want) == 0 {
				continue
			}
			b := q.pop()
			if b != want[0] {
				t.Fatal("pop took another append than the first")
			}
			want, gone = want[1:], append(gone, b)
		case 3:
			if len(want) == 0 {
				continue
			}
			n := random.IntN(len(want))
			b := want[n]
			if !q.remove(b) {
				t.Fatal("an append that waits was not found")
			}
			want, gone = slices.Delete(want, n, n+1), append(gone, b)
		}
		if len(gone) > 0 && q.remove(gone[random.IntN(len(gone))]) {
			t.Fatal("an append was taken out twice")
		}
		var got []*blockedAppend
		for b := q.first; b != nil; b = b.next {
			got = append(got, b)
		}
		if !slices.Equal(got, want) || len(want) > 0 && q.last != want[len(want)-1] || len(want) == 0 && q.last != nil {
			t.Fatalf("the queue has %d appends in another order, want %d", len(got), len(want))
		}
		if len(want) > 20 {
			for len(want) > 0 {
				q.pop()
				want = want[1:]
			}
		}
	}
}
