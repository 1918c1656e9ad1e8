package collect

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/net"
)

// networkCollector measures traffic.
type networkCollector struct {
	interfaces, skip   list
	bits, errors, drop thresholds
	sample             time.Duration
}

func (c *networkCollector) flags(fs *flag.FlagSet) {
	c.bits.register(fs, "", "", "", "above so many bits in a second, in either direction")
	c.errors.register(fs, "-errors", "", "", "above so many errors in a second")
	c.drop.register(fs, "-drops", "", "", "above so many packets dropped in a second")
	fs.Var(&c.interfaces, "interface", "interfaces, or patterns such as eth*; default all but loopback and those of containers")
	fs.Var(&c.skip, "exclude-interface", "interfaces, or patterns, that are left out")
	fs.DurationVar(&c.sample, "sample", time.Second, "how long to measure when there is no run to compare with")
}

// containers match interfaces of containers, and interfaces without traffic of their own.
var containers = list{"lo", "lo[0-9]*", "veth*", "docker*", "cni*", "cali*", "flannel*", "br-*", "virbr*", "tap*", "dummy*", "ifb*", "sit[0-9]*"}

func (c *networkCollector) wants(name string) bool {
	if c.skip.matches(name) {
		return false
	}
	if len(c.interfaces) > 0 {
		return c.interfaces.matches(name)
	}
	return !containers.matches(name)
}

// counters are an interface's counters, by metric name.
type counters map[string]float64

func (c *networkCollector) collect(ctx context.Context, r *run) error {
	old, now, elapsed, err := sampled(ctx, r, c.sample, func() (map[string]counters, error) {
		if runtime.GOOS == "linux" {
			return r.netDev()
		}
		all, err := net.IOCountersWithContext(ctx, true)
		if err != nil {
			return nil, fmt.Errorf("read counters of interfaces: %w", err)
		}
		m := map[string]counters{}
		for _, i := range all {
			m[i.Name] = counters{
				"rx_byte": float64(i.BytesRecv), "tx_byte": float64(i.BytesSent), "rx_packets": float64(i.PacketsRecv), "tx_packets": float64(i.PacketsSent),
				"rx_errors": float64(i.Errin), "tx_errors": float64(i.Errout), "rx_drop": float64(i.Dropin), "tx_drop": float64(i.Dropout),
				"rx_fifo": float64(i.Fifoin), "tx_fifo": float64(i.Fifoout),
			}
		}
		return m, nil
	})
	if err != nil {
		return err
	}
	found := false
	for _, name := range sortedKeys(now) {
		was, known := old[name]
		if !known || !c.wants(name) {
			continue
		}
		found = true
		rates := counters{}
		p := "network." + strings.ReplaceAll(name, ".", "_") + "."
		for _, key := range sortedKeys(now[name]) {
			rates[key] = rate(was[key], now[name][key], elapsed)
			r.metric(p+key, rates[key])
		}
		rx, tx := 8*rates["rx_byte"], 8*rates["tx_byte"]
		r.metric(p+"rx_bit", rx)
		r.metric(p+"tx_bit", tx)
		r.judge(name, max(rx, tx), "b", &c.bits, fmt.Sprintf("%s in %s, out %s", name, bits(rx), bits(tx)))
		if bad := rates["rx_errors"] + rates["tx_errors"]; bad > 0 || c.errors.critical.set || c.errors.warning.set {
			r.judge(name+"_errors", bad, "", &c.errors, fmt.Sprintf("%s %s errors per second", name, number(bad)))
		}
		if bad := rates["rx_drop"] + rates["tx_drop"]; c.drop.critical.set || c.drop.warning.set {
			r.judge(name+"_drops", bad, "", &c.drop, fmt.Sprintf("%s %s drops per second", name, number(bad)))
		}
	}
	switch {
	case !found && len(c.interfaces) > 0:
		return errors.New("there is no such interface")
	case !found:
		r.say("no interfaces")
	}
	return nil
}

// bits formats a rate for people.
func bits(v float64) string {
	units := []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"}
	for v >= 1000 && len(units) > 1 {
		v, units = v/1000, units[1:]
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[0]
}

// netDevNames are the columns of /proc/net/dev.
var netDevNames = []string{
	"rx_byte", "rx_packets", "rx_errors", "rx_drop", "rx_fifo", "rx_frame", "rx_compressed", "rx_multicast",
	"tx_byte", "tx_packets", "tx_errors", "tx_drop", "tx_fifo", "tx_colls", "tx_carrier", "tx_compressed",
}

func (r *run) netDev() (map[string]counters, error) {
	b, err := r.readProc("net/dev")
	if err != nil {
		return nil, err
	}
	m := map[string]counters{}
	for line := range strings.Lines(string(b)) {
		name, rest, ok := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) < len(netDevNames) {
			continue
		}
		c := counters{}
		for i, key := range netDevNames {
			if c[key], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("read net/dev: %q: %w", line, err)
			}
		}
		m[strings.TrimSpace(name)] = c
	}
	return m, nil
}
