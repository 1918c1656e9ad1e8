package send

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// The tests of this file use real servers, where they are installed.

// program returns the path of the first installed program.
func program(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("%s is not installed", names[0])
	return ""
}

// serve runs a server until the test ends, and returns when it takes connections at addr.
func serve(t testing.TB, addr, path string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s", text)
		}
	})
	eventually(t, func() string {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err.Error()
		}
		conn.Close()
		return ""
	})
}

// eventually calls ask until it returns no complaint. The other process gives no signal to wait for.
func eventually(t testing.TB, ask func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		complaint := ask()
		if complaint == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(complaint)
		case <-tick.C:
		}
	}
}

func get(t testing.TB, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRealAlertmanager(t *testing.T) {
	path := program(t, "alertmanager", "prometheus-alertmanager")
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir, addr := t.TempDir(), closedAddress(t)
	config := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(config, []byte("route: {receiver: none}\nreceivers: [{name: none}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, addr, path, "--config.file="+config, "--storage.path="+dir, "--web.listen-address="+addr, "--cluster.listen-address=")
	s := setup(t, Options{})
	h := handler("alertmanager")
	h.Alertmanager = &resource.HandlerAlertmanager{
		URLs: []string{"http://" + addr}, Labels: map[string]string{"rack": "{{.Entity.Labels.rack}}"},
		Link: "http://lapwing/{{.Name}}",
	}
	f := func(ev *resource.Event, severities ...string) {
		t.Helper()
		want(t, "send", s.Run(t.Context(), h, job(ev)), KindOK, false, "")
		eventually(t, func() string {
			text := get(t, "http://"+addr+"/api/v2/alerts?active=true")
			var alerts []struct {
				Labels, Annotations map[string]string
				StartsAt            time.Time
			}
			if err := json.Unmarshal([]byte(text), &alerts); err != nil {
				return err.Error() + " in " + text
			}
			var firing []string
			for _, a := range alerts {
				if a.Labels["alertname"] != "disk" || a.Labels["entity"] != "web1" || a.Labels["rack"] != "17" || a.Annotations["summary"] == "" {
					return "unexpected alert in " + text
				}
				firing = append(firing, a.Labels["severity"])
			}
			if fmt.Sprint(firing) != fmt.Sprint(severities) {
				return fmt.Sprintf("firing are %v, want %v: %s", firing, severities, text)
			}
			return ""
		})
	}
	f(event(1, 0), "warning")
	f(event(2, 0, 1), "critical")
	f(event(3, 0, 1, 2), "unknown")
	f(event(0, 0, 1, 2, 3))
}

func TestRealInflux(t *testing.T) {
	path := program(t, "influxd")
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir, addr, udp := t.TempDir(), closedAddress(t), closedAddress(t)
	config := filepath.Join(dir, "influxdb.conf")
	text := fmt.Sprintf(`reporting-disabled = true
bind-address = %q
[meta]
dir = %q
[data]
dir = %q
wal-dir = %q
[http]
bind-address = %q
[[udp]]
enabled = true
bind-address = %q
database = "db"
batch-timeout = "100ms"
[monitor]
store-enabled = false
`, closedAddress(t), dir+"/meta", dir+"/data", dir+"/wal", addr, udp)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, addr, path, "-config", config)
	eventually(t, func() string { // it listens before it is ready to create one
		resp, err := http.PostForm("http://"+addr+"/query", url.Values{"q": {"CREATE DATABASE db"}})
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		text := get(t, "http://"+addr+"/query?"+url.Values{"q": {"SHOW DATABASES"}}.Encode())
		if !strings.Contains(text, `["db"]`) {
			return "databases are " + text
		}
		return ""
	})
	s := setup(t, Options{})
	stored := func(query string, parts ...string) {
		t.Helper()
		eventually(t, func() string {
			text := get(t, "http://"+addr+"/query?"+url.Values{"db": {"db"}, "q": {query}}.Encode())
			for _, part := range parts {
				if !strings.Contains(text, part) {
					return fmt.Sprintf("%s is not in %s", part, text)
				}
			}
			return ""
		})
	}
	h := handler("influx")
	h.Influx = &resource.HandlerInflux{URL: "http://" + addr, Database: "db"}
	res := s.Run(t.Context(), h, job(awkward()))
	want(t, "awkward", res, KindOK, false, "")
	if string(res.Output) != "7 points sent, 3 left out" {
		t.Errorf("output %q", res.Output)
	}
	stored(`SELECT * FROM cpu`, `["2023-11-14T22:13:20Z","0","web1.example.org",1.5]`,
		`["2023-11-14T22:13:20.123Z","1","web1.example.org",-2]`)
	stored(`SELECT * FROM "two_lines x y"`, `"a;b=c d"`, `"v_;~="`)
	stored(`SELECT * FROM plain`, `1e+21`)
	h.Influx.Database = "none"
	want(t, "no database", s.Run(t.Context(), h, job(awkward())), KindFailed, false, "status 404")
	h.Influx = &resource.HandlerInflux{URL: "udp://" + udp}
	want(t, "udp", s.Run(t.Context(), h, job(measured(point("by.udp", 42, 1_700_000_000)))), KindOK, false, "")
	stored(`SELECT * FROM "by"`, `["2023-11-14T22:13:20Z","web1.example.org",42]`)
}

// TestRealCarbon: carbon writes files that are named after the series.
func TestRealCarbon(t *testing.T) {
	path := program(t, "carbon-cache", "carbon-cache.py")
	dir, addr := t.TempDir(), closedAddress(t)
	conf := filepath.Join(dir, "conf")
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	for name, text := range map[string]string{
		"carbon.conf": fmt.Sprintf("[cache]\nLOCAL_DATA_DIR = %[1]s/data\nSTORAGE_DIR = %[1]s\n"+
			"LOG_DIR = %[1]s/log\nPID_DIR = %[1]s\nUSER =\nMAX_CREATES_PER_MINUTE = inf\n"+
			"LINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = %[2]s\n"+
			"PICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = %[3]s\n"+
			"CACHE_QUERY_INTERFACE = 127.0.0.1\nCACHE_QUERY_PORT = %[4]s\n"+
			"ENABLE_UDP_LISTENER = True\nUDP_RECEIVER_INTERFACE = 127.0.0.1\nUDP_RECEIVER_PORT = %[2]s\nENABLE_TAGS = False\n",
			dir, port(addr), port(closedAddress(t)), port(closedAddress(t))),
		"storage-schemas.conf": "[default]\npattern = .*\nretentions = 60s:1d\n",
	} {
		if err := os.MkdirAll(conf, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(conf, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GRAPHITE_ROOT", dir)
	serve(t, addr, path, "--config="+filepath.Join(conf, "carbon.conf"), "--debug", "start")
	s := setup(t, Options{})
	h := handler("graphite")
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	h.Graphite = &resource.HandlerGraphite{Host: "127.0.0.1", Port: uint32(tcp.Port)}
	want(t, "awkward", s.Run(t.Context(), h, job(awkward())), KindOK, false, "")
	want(t, "again", s.Run(t.Context(), h, job(measured(point("second.event", 1, time.Now().Unix())))), KindOK, false, "")
	h.Graphite.Protocol = "udp"
	want(t, "udp", s.Run(t.Context(), h, job(measured(point("by.udp", 1, time.Now().Unix())))), KindOK, false, "")
	for _, name := range []string{"plain", "micro", "no_time", "second/event", "by/udp"} {
		eventually(t, func() string {
			if _, err := os.Stat(filepath.Join(dir, "data/sensu/web1_example_org", name+".wsp")); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	// Files of series with tags are somewhere below, by a hash of their names.
	eventually(t, func() string {
		files := 0
		err := filepath.WalkDir(filepath.Join(dir, "data"), func(path string, _ os.DirEntry, err error) error {
			if strings.HasSuffix(path, ".wsp") {
				files++
			}
			return err
		})
		if err != nil || files != 7+2 {
			return fmt.Sprintf("%d series, %v", files, err)
		}
		return ""
	})
}
