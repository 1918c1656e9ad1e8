package collect

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
)

// mountPatience bounds the wait for a file system's usage: a mount from a dead server never answers.
const mountPatience = 5 * time.Second

// diskCollector measures space and inodes.
type diskCollector struct {
	used, inodes    thresholds
	mounts, skip    list
	types, skipType list
}

func (c *diskCollector) flags(fs *flag.FlagSet) {
	c.used.register(fs, "", "85", "95", "above so many percent of the space in use")
	c.inodes.register(fs, "-inodes", "85", "95", "above so many percent of the inodes in use")
	fs.Var(&c.mounts, "mount", "mount points, or patterns such as /data/*; default all that are on a device")
	fs.Var(&c.skip, "exclude-mount", "mount points, or patterns, that are left out")
	fs.Var(&c.types, "type", "types of file systems; default all but those in memory and read-only images")
	fs.Var(&c.skipType, "exclude-type", "types of file systems that are left out")
}

// virtual are file system types that never fill or are always full.
var virtual = []string{
	"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "iso9660",
	"mqueue", "nsfs", "overlay", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs", "squashfs", "sysfs", "tracefs", "erofs",
}

func (c *diskCollector) wants(p *disk.PartitionStat) bool {
	switch {
	case c.skip.matches(p.Mountpoint), slices.Contains(c.skipType, p.Fstype):
		return false
	case len(c.types) > 0:
		return slices.Contains(c.types, p.Fstype) && (len(c.mounts) == 0 || c.mounts.matches(p.Mountpoint))
	case len(c.mounts) > 0:
		return c.mounts.matches(p.Mountpoint)
	}
	return !slices.Contains(virtual, p.Fstype)
}

func (c *diskCollector) collect(ctx context.Context, r *run) error {
	partitions, err := disk.PartitionsWithContext(ctx, len(c.mounts)+len(c.types) > 0)
	if err != nil && len(partitions) == 0 {
		return fmt.Errorf("list file systems: %w", err)
	}
	seen := map[string]bool{}
	for i := range partitions {
		p := &partitions[i]
		if seen[p.Mountpoint] || !c.wants(p) {
			continue
		}
		seen[p.Mountpoint] = true
		u, err := r.set.usage(ctx, p.Mountpoint)
		if err != nil {
			r.fail(Critical, "%s: %v", p.Mountpoint, err)
			continue
		}
		if u.Total > 0 {
			c.judge(r, p.Mountpoint, u)
		}
	}
	if len(seen) == 0 {
		return errors.New("there is no such file system")
	}
	return nil
}

func (c *diskCollector) judge(r *run, mount string, u *disk.UsageStat) {
	name := strings.ReplaceAll(strings.Trim(mount, "/"), "/", "_")
	if name == "" {
		name = "root"
	}
	name = "diskspace." + strings.ReplaceAll(name, ".", "_") + "."
	// Free excludes the blocks reserved for root.
	reserved := u.Total - u.Used - min(u.Free, u.Total-u.Used)
	r.metric(name+"byte_percentfree", 100*float64(u.Free+reserved)/float64(u.Total))
	r.metric(name+"byte_used", float64(u.Used))
	r.metric(name+"byte_free", float64(u.Free+reserved))
	r.metric(name+"byte_avail", float64(u.Free))
	used := u.UsedPercent
	r.judge(mount, used, "%", &c.used, fmt.Sprintf("%s %s%% used, %s free", mount, number(used), size(u.Free)))
	if u.InodesTotal > 0 {
		r.metric(name+"inodes_percentfree", 100*float64(u.InodesFree)/float64(u.InodesTotal))
		r.metric(name+"inodes_used", float64(u.InodesUsed))
		r.metric(name+"inodes_free", float64(u.InodesFree))
		r.metric(name+"inodes_avail", float64(u.InodesFree))
		if p := u.InodesUsedPercent; c.inodes.critical.broken(p) || c.inodes.warning.broken(p) {
			r.judge(mount+"_inodes", p, "%", &c.inodes, fmt.Sprintf("%s %s%% of inodes used", mount, number(p)))
		}
	}
}

// usage reads a file system's usage, and gives up on one that does not answer. It does not ask again before the answer:
// each call would block a thread.
func (s *Set) usage(ctx context.Context, mount string) (*disk.UsageStat, error) {
	s.mu.Lock()
	stuck := s.mounts[mount]
	s.mounts[mount] = true
	s.mu.Unlock()
	if stuck {
		return nil, errors.New("it still does not answer")
	}
	type answer struct {
		u   *disk.UsageStat
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		u, err := disk.Usage(mount)
		s.mu.Lock()
		delete(s.mounts, mount)
		s.mu.Unlock()
		answers <- answer{u, err}
	}()
	timer := time.NewTimer(mountPatience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.u, a.err
	case <-timer.C:
		return nil, fmt.Errorf("it does not answer within %s", mountPatience)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// diskioCollector measures disk I/O.
type diskioCollector struct {
	devices     list
	util, await thresholds
	sample      time.Duration
}

func (c *diskioCollector) flags(fs *flag.FlagSet) {
	c.util.register(fs, "", "", "", "above so many percent of the time that a disk is busy")
	c.await.register(fs, "-await", "", "", "above so many milliseconds that a request takes on average")
	fs.Var(&c.devices, "device", "devices, or patterns such as nvme*n1; default all but loop devices and RAM disks")
	fs.DurationVar(&c.sample, "sample", time.Second, "how long to measure when there is no run to compare with")
}

func (c *diskioCollector) wants(name string) bool {
	if len(c.devices) > 0 {
		return c.devices.matches(name)
	}
	return !strings.HasPrefix(name, "loop") && !strings.HasPrefix(name, "ram") && !strings.HasPrefix(name, "zram") && !strings.HasPrefix(name, "sr")
}

func (c *diskioCollector) collect(ctx context.Context, r *run) error {
	old, now, elapsed, err := sampled(ctx, r, c.sample, func() (map[string]disk.IOCountersStat, error) {
		all, err := disk.IOCountersWithContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("read counters of disks: %w", err)
		}
		return all, nil
	})
	if err != nil {
		return err
	}
	any := false
	for _, name := range sortedKeys(now) {
		was, known := old[name]
		if !known || !c.wants(name) {
			continue
		}
		any = true
		c.judge(r, name, was, now[name], elapsed)
	}
	if !any && len(c.devices) > 0 {
		return errors.New("there is no such disk")
	}
	if !any {
		r.say("no disks")
	}
	return nil
}

func (c *diskioCollector) judge(r *run, name string, a, b disk.IOCountersStat, elapsed time.Duration) {
	diff := func(old, now uint64) float64 { return rate(float64(old), float64(now), time.Second) } // in total
	seconds := elapsed.Seconds()
	reads, writes := diff(a.ReadCount, b.ReadCount), diff(a.WriteCount, b.WriteCount)
	readBytes, writeBytes := diff(a.ReadBytes, b.ReadBytes), diff(a.WriteBytes, b.WriteBytes)
	readTime, writeTime := diff(a.ReadTime, b.ReadTime), diff(a.WriteTime, b.WriteTime)
	busy, weighted := diff(a.IoTime, b.IoTime), diff(a.WeightedIO, b.WeightedIO)
	per := func(v, n float64) float64 {
		if n == 0 {
			return 0
		}
		return v / n
	}
	ios := reads + writes
	util := min(100, busy/seconds/10)
	await := per(readTime+writeTime, ios)
	if ios > 0 { // Diamond reports only disks with activity
		p := "iostat." + strings.ReplaceAll(name, ".", "_") + "."
		for _, m := range []struct {
			name  string
			value float64
		}{
			{"reads", reads / seconds}, {"reads_merged", diff(a.MergedReadCount, b.MergedReadCount) / seconds}, {"reads_byte", readBytes / seconds}, {"reads_milliseconds", readTime / seconds},
			{"writes", writes / seconds}, {"writes_merged", diff(a.MergedWriteCount, b.MergedWriteCount) / seconds}, {"writes_byte", writeBytes / seconds}, {"writes_milliseconds", writeTime / seconds},
			{"io_in_progress", float64(b.IopsInProgress)}, {"io_milliseconds", busy / seconds}, {"io_milliseconds_weighted", weighted / seconds},
			{"read_requests_merged_per_second", diff(a.MergedReadCount, b.MergedReadCount) / seconds}, {"write_requests_merged_per_second", diff(a.MergedWriteCount, b.MergedWriteCount) / seconds},
			{"reads_per_second", reads / seconds}, {"writes_per_second", writes / seconds},
			{"read_byte_per_second", readBytes / seconds}, {"write_byte_per_second", writeBytes / seconds},
			{"average_request_size_byte", per(readBytes+writeBytes, ios)}, {"io", ios}, {"iops", ios / seconds},
			{"average_queue_length", weighted / seconds / 1000}, {"util_percentage", util}, {"concurrent_io", per(weighted, busy)},
			{"read_await", per(readTime, reads)}, {"write_await", per(writeTime, writes)}, {"await", await}, {"service_time", per(busy, ios)},
		} {
			r.metric(p+m.name, m.value)
		}
	}
	r.judge(name, util, "%", &c.util, fmt.Sprintf("%s %s%% busy, %s requests per second", name, number(util), number(ios/seconds)))
	if c.await.warning.set || c.await.critical.set {
		r.judge(name+"_await", await, "ms", &c.await, fmt.Sprintf("%s %s ms per request", name, number(await)))
	}
}
