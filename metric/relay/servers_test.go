package relay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/ring"
)

// closedPort returns a port that was free a moment ago.
func closedPort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// realCarbon starts a carbon-cache that takes lines and pickles. It skips the test if there is none.
func realCarbon(t testing.TB) (dir string, line, pickle int) {
	t.Helper()
	path, err := exec.LookPath("carbon-cache")
	if err != nil {
		t.Skip("carbon-cache is not installed")
	}
	dir, line, pickle = t.TempDir(), closedPort(t), closedPort(t)
	conf := filepath.Join(dir, "conf")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"carbon.conf": fmt.Sprintf("[cache]\nLOCAL_DATA_DIR = %[1]s/data\nSTORAGE_DIR = %[1]s\nLOG_DIR = %[1]s/log\nPID_DIR = %[1]s\n"+
			"USER =\nMAX_CREATES_PER_MINUTE = inf\nMAX_UPDATES_PER_SECOND = inf\nENABLE_TAGS = False\n"+
			"LINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = %[2]d\n"+
			"PICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = %[3]d\n"+
			"CACHE_QUERY_INTERFACE = 127.0.0.1\nCACHE_QUERY_PORT = %[4]d\n"+
			"ENABLE_UDP_LISTENER = True\nUDP_RECEIVER_INTERFACE = 127.0.0.1\nUDP_RECEIVER_PORT = %[2]d\n",
			dir, line, pickle, closedPort(t)),
		"storage-schemas.conf": "[default]\npattern = .*\nretentions = 60s:1h\n",
	} {
		if err := os.WriteFile(filepath.Join(conf, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	cmd := exec.Command(path, "--config="+filepath.Join(conf, "carbon.conf"), "--debug", "start")
	cmd.Env = append(os.Environ(), "GRAPHITE_ROOT="+dir)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", log.Bytes())
		}
	})
	for _, port := range []int{line, pickle} {
		eventually(t, func() string {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				return err.Error()
			}
			conn.Close()
			return ""
		})
	}
	return dir, line, pickle
}

// TestRealCarbon sends points to carbon itself, and looks for their values in its files.
func TestRealCarbon(t *testing.T) {
	dir, line, pickle := realCarbon(t)
	local := func(port int) ring.Destination { return ring.Destination{Host: "127.0.0.1", Port: port} }
	now := time.Now().Unix()
	for _, tc := range []struct {
		prefix string
		o      DestinationOptions
		names  int
	}{
		{"pickle", DestinationOptions{Destination: local(pickle)}, 1000},
		{"line", DestinationOptions{Destination: local(line), Protocol: Line}, 1000},
		{"udp", DestinationOptions{Destination: local(line), Protocol: UDP}, 10},
	} {
		r, d := one(t, tc.o)
		value := func(i int) float64 { return float64(i) + 0.25 }
		for i := range tc.names {
			d.Add(fmt.Appendf(nil, "%s.größe.n%d", tc.prefix, i), now, value(i))
		}
		d.Add([]byte("not\xffutf8"), now, 1)
		stopInOrder(t, r)
		if s := d.Stats(); s.Sent != uint64(tc.names) || s.Dropped[dropUnusable] != 1 {
			t.Errorf("%s: %+v", tc.prefix, s)
		}
		for i := range tc.names {
			slot := binary.BigEndian.AppendUint32(nil, uint32(now-now%60))
			slot = binary.BigEndian.AppendUint64(slot, math.Float64bits(value(i)))
			path := filepath.Join(dir, "data", strings.ReplaceAll(fmt.Sprintf("%s.größe.n%d.wsp", tc.prefix, i), ".", "/"))
			path = strings.TrimSuffix(path, "/wsp") + ".wsp"
			eventually(t, func() string {
				file, err := os.ReadFile(path)
				if err != nil {
					return err.Error()
				}
				if !bytes.Contains(file, slot) {
					return path + " does not have the value"
				}
				return ""
			})
		}
	}
}
