package collect

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// The collectors below read the kernel's text files of names and numbers.

func (r *run) readProc(name string) ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, errLinuxOnly
	}
	b, err := os.ReadFile(filepath.Join(r.set.opts.Proc, name))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// meminfo is /proc/meminfo in bytes.
func (r *run) meminfo() (map[string]float64, error) {
	b, err := r.readProc("meminfo")
	if err != nil {
		return nil, err
	}
	info := map[string]float64{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		v, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			continue
		}
		if len(fields) > 2 && fields[2] == "kB" {
			v *= 1024
		}
		info[strings.TrimSuffix(fields[0], ":")] = v
	}
	return info, nil
}

// vmstat is /proc/vmstat.
func (r *run) vmstat() (map[string]float64, error) {
	b, err := r.readProc("vmstat")
	if err != nil {
		return nil, err
	}
	counters := map[string]float64{}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				counters[name] = v
			}
		}
	}
	return counters, nil
}

// headed reads files such as /proc/net/snmp, where a line of names precedes each line of values, both prefixed by the
// protocol.
func headed(b []byte) map[string]float64 {
	values := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		names := strings.Fields(lines.Text())
		if !lines.Scan() {
			break
		}
		numbers := strings.Fields(lines.Text())
		if len(names) != len(numbers) || len(names) == 0 || names[0] != numbers[0] {
			continue
		}
		protocol := strings.TrimSuffix(names[0], ":")
		for i := 1; i < len(names); i++ {
			if v, err := strconv.ParseFloat(numbers[i], 64); err == nil {
				values[protocol+"."+names[i]] = v
			}
		}
	}
	return values
}

// tcpCollector measures the kernel's TCP counters.
type tcpCollector struct{ established, retransmitted, overflows thresholds }

func (c *tcpCollector) flags(fs *flag.FlagSet) {
	c.established.register(fs, "", "", "", "above so many connections")
	c.retransmitted.register(fs, "-retransmits", "", "", "above so many segments sent again in a second")
	c.overflows.register(fs, "-overflows", "", "", "above so many connections refused in a second because a program does not accept them")
}

// tcpGauges and tcpRates are the counters that become metrics.
var (
	tcpGauges = []string{"Tcp.CurrEstab"}
	tcpRates  = []string{
		"TcpExt.ListenOverflows", "TcpExt.ListenDrops", "TcpExt.TCPLoss", "TcpExt.TCPTimeouts", "TcpExt.TCPFastRetrans", "TcpExt.TCPLostRetransmit",
		"TcpExt.TCPForwardRetrans", "TcpExt.TCPSlowStartRetrans", "TcpExt.TCPAbortOnMemory", "TcpExt.TCPBacklogDrop",
		"Tcp.AttemptFails", "Tcp.EstabResets", "Tcp.InErrs", "Tcp.ActiveOpens", "Tcp.PassiveOpens", "Tcp.RetransSegs",
	}
)

func (c *tcpCollector) collect(_ context.Context, r *run) error {
	now := map[string]float64{}
	for _, name := range []string{"net/snmp", "net/netstat"} {
		b, err := r.readProc(name)
		if err != nil {
			return err
		}
		maps.Copy(now, headed(b))
	}
	base := func(name string) string { return name[strings.IndexByte(name, '.')+1:] }
	for _, name := range tcpGauges {
		r.metric("tcp."+base(name), now[name])
	}
	r.judge("established", now["Tcp.CurrEstab"], "", &c.established, number(now["Tcp.CurrEstab"])+" connections")
	old, elapsed, ok := before(r, now)
	rates := map[string]float64{}
	if ok {
		for _, name := range tcpRates {
			if _, has := now[name]; has { // not every kernel has each counter
				rates[name] = rate(old[name], now[name], elapsed)
				r.metric("tcp."+base(name), rates[name])
			}
		}
	}
	r.judge("retransmits", rates["Tcp.RetransSegs"], "", &c.retransmitted, number(rates["Tcp.RetransSegs"])+" segments sent again per second")
	r.judge("overflows", rates["TcpExt.ListenOverflows"], "", &c.overflows, number(rates["TcpExt.ListenOverflows"])+" overflows per second")
	return nil
}

// netstatCollector counts TCP connections by state.
type netstatCollector struct {
	limits map[string]*thresholds
}

// tcpStates are the states as the kernel numbers them, from 1 on.
var tcpStates = []string{
	"ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING",
}

func (c *netstatCollector) flags(fs *flag.FlagSet) {
	c.limits = map[string]*thresholds{}
	for _, state := range tcpStates {
		c.limits[state] = new(thresholds)
		c.limits[state].register(fs, "-"+strings.ToLower(strings.ReplaceAll(state, "_", "-")), "", "", "above so many connections in state "+state)
	}
}

func (c *netstatCollector) collect(_ context.Context, r *run) error {
	counts := make([]float64, len(tcpStates))
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		b, err := r.readProc(name)
		if err != nil {
			if name == "net/tcp6" { // a kernel without IPv6
				continue
			}
			return err
		}
		for line := range bytes.Lines(b) {
			// "  0: 0100007F:1F90 00000000:0000 0A ..."
			fields := bytes.Fields(line)
			if len(fields) < 4 {
				continue
			}
			if n, err := strconv.ParseUint(string(fields[3]), 16, 8); err == nil && n >= 1 && int(n) <= len(counts) {
				counts[n-1]++
			}
		}
	}
	for i, state := range tcpStates {
		r.metric("netstat."+state, counts[i])
		r.judge(state, counts[i], "", c.limits[state], number(counts[i])+" "+state)
	}
	return nil
}

// socketsCollector counts sockets.
type socketsCollector struct{ used, orphans thresholds }

func (c *socketsCollector) flags(fs *flag.FlagSet) {
	c.used.register(fs, "", "", "", "above so many sockets")
	c.orphans.register(fs, "-orphans", "", "", "above so many connections that no program has any more")
}

func (c *socketsCollector) collect(_ context.Context, r *run) error {
	b, err := r.readProc("net/sockstat")
	if err != nil {
		return err
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(b)) {
		protocol, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields := strings.Fields(rest)
		for i := 0; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i+1], 64); err == nil {
				values[strings.ToLower(protocol)+"_"+fields[i]] = v
			}
		}
	}
	for _, m := range []struct{ path, name string }{
		{"used", "sockets_used"}, {"tcp_inuse", "tcp_inuse"}, {"tcp_orphan", "tcp_orphan"}, {"tcp_tw", "tcp_tw"}, {"tcp_alloc", "tcp_alloc"},
		{"tcp_mem", "tcp_mem"}, {"udp_inuse", "udp_inuse"}, {"udp_mem", "udp_mem"},
	} {
		if v, ok := values[m.name]; ok {
			r.metric("sockets."+m.path, v)
		}
	}
	r.judge("used", values["sockets_used"], "", &c.used, number(values["sockets_used"])+" sockets")
	r.judge("orphans", values["tcp_orphan"], "", &c.orphans, number(values["tcp_orphan"])+" orphans")
	return nil
}

// filesCollector counts open files.
type filesCollector struct{ used thresholds }

func (c *filesCollector) flags(fs *flag.FlagSet) {
	c.used.register(fs, "", "80", "95", "above so many percent of the files that the system may have open")
}

func (c *filesCollector) collect(_ context.Context, r *run) error {
	b, err := r.readProc("sys/fs/file-nr")
	if err != nil {
		return err
	}
	var values []float64
	for _, f := range strings.Fields(string(b)) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return fmt.Errorf("read sys/fs/file-nr: %w", err)
		}
		values = append(values, v)
	}
	if len(values) != 3 || values[2] == 0 {
		return fmt.Errorf("read sys/fs/file-nr: %q is not understood", b)
	}
	for i, name := range []string{"assigned", "unused", "max"} {
		r.metric("files."+name, values[i])
	}
	used := 100 * (values[0] - values[1]) / values[2]
	r.judge("used", used, "%", &c.used, fmt.Sprintf("%s of %s files open", number(values[0]-values[1]), number(values[2])))
	return nil
}

// sortedKeys returns the keys of a map sorted, so that outputs can be compared.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
