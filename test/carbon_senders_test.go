package test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// runSender runs another project's program until the test ends.
func runSender(t *testing.T, env []string, path string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", path, tailOf(log.Bytes(), 4000))
		}
	})
}

// TestRealCollectd has collectd's write_graphite send the figures of this machine.
func TestRealCollectd(t *testing.T) {
	t.Parallel()
	path := findProgram(t, "collectd", "/usr/sbin/collectd")
	c := newCarbon(t)
	c.start()
	host, port, err := net.SplitHostPort(c.line)
	if err != nil {
		t.Fatal(err)
	}
	conf := c.file("collectd.conf", fmt.Sprintf(`
Hostname "box.example"
FQDNLookup false
Interval 1
BaseDir "%[1]s"
PIDFile "%[1]s/collectd.pid"
LoadPlugin logfile
<Plugin logfile>
  File STDOUT
</Plugin>
LoadPlugin cpu
LoadPlugin load
LoadPlugin uptime
LoadPlugin memory
LoadPlugin write_graphite
<Plugin write_graphite>
  <Node "lapwing">
    Host "%[2]s"
    Port "%[3]s"
    Protocol "tcp"
    Prefix "collectd."
  </Node>
</Plugin>
`, c.dir, host, port))
	runSender(t, nil, path, "-f", "-C", conf)
	eventually(t, time.Minute, "figures of all plugins are there", func() bool {
		// Dots in the host's name are collectd's own escape character.
		for _, target := range []string{"collectd.box_example.load.load.*", "collectd.box_example.uptime.uptime", "collectd.box_example.memory.memory-*",
			"collectd.box_example.cpu-0.cpu-*"} {
			series := c.render("-2min", "now", "removeEmptySeries("+target+")")
			if len(series) == 0 {
				return false
			}
		}
		return true
	})
	series := c.render("-2min", "now", "collectd.box_example.uptime.uptime")
	for at, v := range valuesOf(&series[0]) {
		if v <= 0 {
			t.Errorf("an uptime of %v at %d", v, at)
		}
	}
	if n := c.metric("lapwing_metric_carbon_rejected_points_total", "reason=format"); n != 0 {
		t.Errorf("%v lines of collectd could not be read", n)
	}
}

// TestRealCarbonRelay has a carbon-relay pass lines on as pickles.
func TestRealCarbonRelay(t *testing.T) {
	t.Parallel()
	path := findProgram(t, "carbon-relay", "/usr/bin/carbon-relay")
	c := newCarbon(t)
	c.start()
	line, dir := freePort(t), filepath.Join(c.dir, "relay")
	conf := filepath.Join(dir, "conf")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		t.Fatal(err)
	}
	_, pickle, err := net.SplitHostPort(c.pickle)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"carbon.conf": fmt.Sprintf("[relay]\nSTORAGE_DIR = %[1]s\nLOG_DIR = %[1]s/log\nPID_DIR = %[1]s\nUSER =\n"+
			"LINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = %[2]s\nPICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = %[3]s\n"+
			"RELAY_METHOD = consistent-hashing\nREPLICATION_FACTOR = 1\nDESTINATIONS = 127.0.0.1:%[4]s:a\n", dir, line, freePort(t), pickle),
		"storage-schemas.conf": "[default]\npattern = .*\nretentions = 60s:1h\n",
	} {
		if err := os.WriteFile(filepath.Join(conf, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runSender(t, []string{"GRAPHITE_ROOT=" + dir}, path, "--config="+filepath.Join(conf, "carbon.conf"), "--debug", "start")
	const names = 1000
	now := time.Now().Unix() / 10 * 10
	var lines []byte
	for i := range names {
		lines = fmt.Appendf(lines, "relayed.größe.n%03d %d.25 %d\n", i, i, now)
	}
	eventually(t, time.Minute, "carbon-relay takes the lines", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+line)
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = conn.Write(lines)
		return err == nil
	})
	eventually(t, time.Minute, "all points are there", func() bool {
		series := c.render(fmt.Sprint(now-1), fmt.Sprint(now), "relayed.größe.*")
		return len(series) == names && !slices.ContainsFunc(targetsOf(series), func(n string) bool { return !strings.HasPrefix(n, "relayed.größe.n") })
	})
	for i, s := range c.render(fmt.Sprint(now-1), fmt.Sprint(now), "sortByName(relayed.größe.*)") {
		if v := valuesOf(&s)[now]; v != float64(i)+0.25 {
			t.Errorf("%s is %v", s.Target, v)
		}
	}
	if n := c.metric("lapwing_metric_carbon_points_total", "protocol=pickle"); n < names {
		t.Errorf("%v points came as pickles", n)
	}
}
