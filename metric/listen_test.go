package metric

import (
	"net"
	"syscall"
	"testing"
)

// TestPortsInUse: an error about a port names its flag and its address.
func TestPortsInUse(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	busy := tcp.Addr().String()
	for flag, change := range map[string]func(*Options){
		"--carbon-listen-address " + busy:          func(o *Options) { o.LineAddress = busy },
		"--carbon-gzip-listen-address " + busy:     func(o *Options) { o.GzipAddress = busy },
		"--carbon-pickle-listen-address " + busy:   func(o *Options) { o.PickleAddress = busy },
		"--carbon-protobuf-listen-address " + busy: func(o *Options) { o.ProtobufAddress = busy },
		"--graphite-listen-address " + busy:        func(o *Options) { o.QueryAddress = busy },
		"--carbon-udp-listen-address " + udp.LocalAddr().String(): func(o *Options) {
			o.UDPAddress = udp.LocalAddr().String()
		},
	} {
		o := DefaultOptions()
		o.Dir = t.TempDir()
		change(&o)
		s, err := New(o)
		if err == nil {
			err = s.Stop(t.Context())
			t.Errorf("%s: it starts (%v)", flag, err)
			continue
		}
		if want := flag + ": " + syscall.EADDRINUSE.Error(); err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
