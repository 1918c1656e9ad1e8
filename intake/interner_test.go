package intake

import (
	"fmt"
	"sync"
	"testing"
	"unsafe"
)

func TestInterner(t *testing.T) {
	n := newInterner()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 100 * internerShards {
				name := fmt.Sprintf("check-%d", i)
				if got := n.get([]byte(name)); got != name {
					t.Errorf("%q became %q", name, got)
				}
			}
		})
	}
	all.Wait()
	name := []byte("check-1")
	if a, b := n.get(name), n.get(name); unsafe.StringData(a) != unsafe.StringData(b) {
		t.Error("the same name is two strings")
	}
	if got := testing.AllocsPerRun(100, func() { n.get(name) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
	for i := range 100 * maxInterned * internerShards / 10 {
		n.get(fmt.Appendf(nil, "gone-%d", i))
	}
	kept := 0
	for i := range n.shards {
		kept += len(n.shards[i].names)
	}
	if kept > maxInterned*internerShards {
		t.Errorf("%d names are kept", kept)
	}
}
