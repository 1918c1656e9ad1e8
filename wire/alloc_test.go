//go:build !race

package wire

import (
	"fmt"
	"testing"
)

// With the race detector pools drop buffers, so these tests run without it.

func TestReadsDoNotAllocate(t *testing.T) {
	for _, size := range []int{0, 400, 1300, readSize - 8} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s, client := tcpPair(t)
			server := NewServerConn(s, nil, testLimit)
			input := maskedFrames(1, size)
			n := testing.AllocsPerRun(100, func() {
				if _, err := client.Write(input); err != nil {
					t.Fatal(err)
				}
				if got, err := server.Read(); err != nil || len(got) != size {
					t.Fatalf("%d bytes, %v", len(got), err)
				}
			})
			if n >= 1 { // a collection may take a buffer from its pool
				t.Errorf("%v allocations a message", n)
			}
		})
	}
}

func TestWritesDoNotAllocate(t *testing.T) {
	s, c := tcpPair(t)
	server := NewServerConn(s, nil, 0)
	batch := [][]byte{make([]byte, 400), make([]byte, 400)}
	in := make([]byte, 4096)
	for name, write := range map[string]func() error{
		"TryWriteBatch": func() error { _, err := server.TryWriteBatch(batch); return err },
		"WriteBatch":    func() error { return server.WriteBatch(batch) },
		"Write":         func() error { return server.Write(batch[0]) },
	} {
		n := testing.AllocsPerRun(100, func() {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(in); err != nil {
				t.Fatal(err)
			}
		})
		if n >= 1 { // a collection may take a buffer from its pool
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
