package conformance

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// sink receives a handler's output: over TCP one delivery per connection, over UDP one per packet, or one per file in a
// directory.
type sink struct {
	listener net.Listener
	packets  net.PacketConn
	dir      string

	mu  sync.Mutex // guards the fields below
	got [][]byte
	wg  sync.WaitGroup
}

func listen() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for deliveries: %w", err)
	}
	k := &sink{listener: l}
	k.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			k.wg.Go(func() {
				defer conn.Close()
				if b, err := io.ReadAll(conn); err == nil {
					k.add(b)
				}
			})
		}
	})
	return k, nil
}

func listenPacket() (*sink, error) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for deliveries: %w", err)
	}
	k := &sink{packets: c}
	k.wg.Go(func() {
		b := make([]byte, 65536)
		for {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			k.add(slices.Clone(b[:n]))
		}
	})
	return k, nil
}

// watch reads the files that commands put into a directory. Files that begin with a dot are not finished.
func watch(dir string) *sink { return &sink{dir: dir} }

func (k *sink) add(b []byte) {
	k.mu.Lock()
	k.got = append(k.got, b)
	k.mu.Unlock()
}

func (k *sink) port() int {
	if k.listener != nil {
		return k.listener.Addr().(*net.TCPAddr).Port
	}
	return k.packets.LocalAddr().(*net.UDPAddr).Port
}

func (k *sink) len() int {
	k.look()
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.got)
}

// look reads new files of the directory, in the order of their names.
func (k *sink) look() {
	if k.dir == "" {
		return
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(k.dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if b, err := os.ReadFile(path); err == nil && os.Remove(path) == nil {
			k.add(b)
		}
	}
}

// take returns the first n deliveries that are not taken yet, or all if n is negative.
func (k *sink) take(n int) [][]byte {
	k.look()
	k.mu.Lock()
	defer k.mu.Unlock()
	if n < 0 || n > len(k.got) {
		n = len(k.got)
	}
	l := k.got[:n:n]
	k.got = k.got[n:]
	return l
}

func (k *sink) close() {
	if k.listener != nil {
		_ = k.listener.Close()
	}
	if k.packets != nil {
		_ = k.packets.Close()
	}
	k.wg.Wait()
}
