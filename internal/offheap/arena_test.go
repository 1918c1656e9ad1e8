package offheap

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestClasses(t *testing.T) {
	before := 0
	for n := 1; n <= largest; n++ {
		class, size := classOf(n)
		if size < n || class >= classes || sizeOf(class) != size || n > smallest && size-n >= size/9+1 {
			t.Fatalf("%d bytes: class %d of %d bytes, which should have %d", n, class, size, sizeOf(class))
		}
		if class != before && class != before+1 {
			t.Fatalf("%d bytes: class %d after %d", n, class, before)
		}
		before = class
	}
	if before != classes-1 {
		t.Errorf("the last class is %d, want %d", before, classes-1)
	}
}

// TestArena compares an arena with a map while strings of all lengths come, change and go.
func TestArena(t *testing.T) {
	begun := Mapped()
	var a Arena
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 8*largest)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	want := map[Ref][]byte{}
	var refs []Ref
	text := func() []byte {
		limit := 2000
		switch random.IntN(20) {
		case 0:
			limit = 3 * largest
		case 1:
			limit = 3
		}
		at := random.IntN(len(noise) - limit)
		return noise[at : at+random.IntN(limit)]
	}
	check := func() {
		t.Helper()
		for ref, b := range want {
			if got := a.Get(ref); !bytes.Equal(got, b) {
				t.Fatalf("ref %x has %d bytes that differ from the %d that were put", ref, len(got), len(b))
			}
		}
	}
	for step := range 9000 {
		growing := step/2000%2 == 0
		switch pick := random.IntN(10); {
		case len(refs) == 0 || pick < 3 || growing && pick < 6:
			b := text()
			ref := a.Put(b)
			if _, ok := want[ref]; ok || ref == 0 {
				t.Fatalf("step %d: ref %x is given out twice", step, ref)
			}
			want[ref], refs = b, append(refs, ref)
		case pick < 8:
			i := random.IntN(len(refs))
			b := text()
			delete(want, refs[i])
			refs[i] = a.Replace(refs[i], b)
			if _, ok := want[refs[i]]; ok {
				t.Fatalf("step %d: ref %x is given out twice", step, refs[i])
			}
			want[refs[i]] = b
		default:
			i := random.IntN(len(refs))
			a.Free(refs[i])
			delete(want, refs[i])
			refs[i] = refs[len(refs)-1]
			refs = refs[:len(refs)-1]
		}
		if step%1000 == 0 {
			check()
		}
	}
	check()
	var bytes int64
	for _, b := range want {
		bytes += int64(len(b))
	}
	t.Logf("%d strings of %d bytes in %d bytes", len(want), bytes, Mapped()-begun)
	for _, ref := range refs {
		a.Free(ref)
	}
	a.Trim()
	if left := Mapped() - begun; left != 0 {
		t.Errorf("%d bytes are left of an arena without strings", left)
	}
	if ref := a.Replace(0, []byte("again")); string(a.Get(ref)) != "again" {
		t.Errorf("an arena that was emptied has %q", a.Get(ref))
	}
}

// TestRoomIsUsedAgain: what is freed makes room for others of its size, and the room that is left over is small.
func TestRoomIsUsedAgain(t *testing.T) {
	begun := Mapped()
	var a Arena
	body := make([]byte, 850)
	refs := make([]Ref, 20_000)
	for i := range refs {
		refs[i] = a.Put(body)
	}
	most := Mapped() - begun
	if limit := int64(len(refs)*len(body)) * 108 / 100; most > limit {
		t.Errorf("%d strings of %d bytes take %d bytes, want at most %d", len(refs), len(body), most, limit)
	}
	for range 10 {
		for i := range refs {
			a.Free(refs[i])
			refs[i] = a.Put(body)
		}
	}
	if now := Mapped() - begun; now > most {
		t.Errorf("%d bytes after strings were replaced, %d before", now, most)
	}
	for _, ref := range refs {
		a.Free(ref)
	}
	if now := Mapped() - begun; now > maxFree*regionSize {
		t.Errorf("an empty arena has %d bytes", now)
	}
}

// BenchmarkReplace is what an event costs whose check has one that waits.
func BenchmarkReplace(b *testing.B) {
	var a Arena
	body := make([]byte, 850)
	refs := make([]Ref, 1<<14)
	for i := range refs {
		refs[i] = a.Put(body)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i & (len(refs) - 1)
		refs[at] = a.Replace(refs[at], body[:840+i&7])
	}
}
