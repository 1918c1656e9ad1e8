package test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// filled gives a backend what a cluster is to have later, and returns what it answers then.
func filled(t *testing.T, c *client.Client, receiver *hookReceiver, url string) map[string]string {
	t.Helper()
	fillForBackup(t, c, url)
	eventually(t, time.Minute, "each delivery was tried", func() bool { n, _ := receiver.count(); return n == parked })
	eventually(t, time.Minute, "the dead letters are there", func() bool { return len(letters(t, c)) == deadLetters })
	return still(t, c)
}

// letters returns the ids of the dead letters.
func letters(t *testing.T, c *client.Client) (ids []string) {
	t.Helper()
	for l, err := range c.DeadLetters(t.Context(), "default", "", "") {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, l.ID)
	}
	return ids
}

// equal checks that all members have what one backend had, and so many events that came later, and that all is well with
// the cluster. Then the receiver takes the deliveries that were waiting, and each must come.
func (all members) equal(t *testing.T, receiver *hookReceiver, want map[string]string, late int) {
	t.Helper()
	for _, p := range all {
		c := p.client()
		sameStill(t, still(t, c), want)
		known, err := outputs(t.Context(), c)
		if n := stillEntities + parked + deadLetters + late; err != nil || len(known) != n {
			t.Errorf("%s knows %d events, want %d: %v", p.api, len(known), n, err)
		}
	}
	key := apiKey(t, all[0].client(), testbackend.User)
	for _, p := range all {
		var out string
		eventually(t, spreadPatience, "all is well with the cluster", func() (well bool) {
			var err error
			out, err = lapwing(t, "cluster", "status", "--api-url", "http://"+p.api, "--api-key", key)
			return err == nil
		})
		t.Logf("%s says:\n%s", p.api, out)
	}
	receiver.mu.Lock()
	receiver.open = true
	receiver.mu.Unlock()
	receiver.awaitTaken(t, "each waiting delivery was sent")
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	for n, keys := range receiver.tried {
		if len(keys) != 1 {
			t.Errorf("incident %d came with %d keys", n, len(keys))
		}
	}
}

// exited waits until a process has ended, and returns its log.
func (p *process) exited() string {
	p.t.Helper()
	err := p.cmd.Wait()
	p.cmd = nil
	if err == nil {
		p.t.Error("the backend has ended without an error")
	}
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// launchUntil runs a backend, and kills it when its log says something.
func (p *process) launchUntil(text string) {
	p.t.Helper()
	count := func() int {
		all, err := os.ReadFile(p.log.Name())
		if err != nil {
			p.t.Fatal(err)
		}
		return strings.Count(string(all), text)
	}
	before := count()
	p.launch()
	eventually(p.t, time.Minute, "the log says: "+text, func() bool { return count() > before })
	p.kill(syscall.SIGKILL)
}

// TestAloneBecomesMember makes the first member of a cluster from a backend that was alone, with kills on the way.
func TestAloneBecomesMember(t *testing.T) {
	receiver := &hookReceiver{tried: map[int64]map[string]bool{}, taken: map[int64]int{}}
	hook := httptest.NewServer(receiver)
	defer hook.Close()
	alone := newProcess(t, "--event-log-partitions", "2")
	alone.start()
	want := filled(t, alone.client(), receiver, hook.URL)
	alone.kill(syscall.SIGTERM)
	alone.start()
	const late = 5
	for i := range late {
		submit(t, alone.client(), fmt.Sprint("late-", i), 1, "late")
	}
	alone.kill(syscall.SIGKILL) // so that a part of the log is in the state database, and the rest is not

	all := newMembers(t, 3)
	first := all[0]
	first.dir = alone.dir
	first.launchUntil("heard of 1 of 3")
	// It may be alone again.
	alone.start()
	sameStill(t, still(t, alone.client()), want)
	alone.kill(syscall.SIGKILL)

	all[1].launch()
	all[2].launch()
	first.launchUntil("brings its data into the cluster")
	first.launchUntil("stream KV_config to be made")
	all[1].kill(syscall.SIGKILL)
	all[1].launch()
	first.launchUntil("the data of this backend is in the cluster")
	first.launchUntil("state is up to date with the log")
	first.launch()
	for _, p := range all {
		p.ready()
	}
	if _, err := os.Stat(filepath.Join(first.dir, "state", "broker-alone")); !os.IsNotExist(err) {
		t.Errorf("the streams of the backend that was alone are still there: %v", err)
	}
	all.equal(t, receiver, want, late)
	first.kill(syscall.SIGTERM)
	alone.launch()
	if text := alone.exited(); !strings.Contains(text, "of a cluster: name the other members") {
		t.Errorf("the member has ended so without --peers:\n%s", tailOf([]byte(text), 1000))
	}
	first.start()
	all.agree(t, []*client.Client{all[0].client(), all[1].client(), all[2].client()})
}

// TestClusterFromBackup makes a backup of a cluster, deletes all data of all members, and restores it.
func TestClusterFromBackup(t *testing.T) {
	receiver := &hookReceiver{tried: map[int64]map[string]bool{}, taken: map[int64]int{}}
	hook := httptest.NewServer(receiver)
	defer hook.Close()
	all := newMembers(t, 3, "--event-log-partitions", "2")
	all.start()
	c := all[0].client()
	want := filled(t, c, receiver, hook.URL)
	key := apiKey(t, c, testbackend.User)
	want["/api/core/v2/apikeys"] = still(t, c)["/api/core/v2/apikeys"]
	file := filepath.Join(t.TempDir(), "lapwing.backup")
	if out, err := lapwing(t, "backup", file, "--api-url", "http://"+all[1].api, "--api-key", key); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	for _, p := range all {
		p.kill(syscall.SIGKILL)
		if err := os.RemoveAll(filepath.Join(p.dir, "state")); err != nil {
			t.Fatal(err)
		}
	}
	out, err := lapwing(t, "restore", file, "--state-dir", filepath.Join(all[2].dir, "state"))
	if err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	// It is alone for a while.
	alone := newProcess(t)
	alone.dir = all[2].dir
	alone.start()
	c = alone.client()
	sameStill(t, still(t, c), want)
	const late = 5
	for i := range late {
		submit(t, c, fmt.Sprint("late-", i), 1, "late")
	}
	alone.kill(syscall.SIGKILL)
	all.start()
	all.equal(t, receiver, want, late)
}

// TestTwoBringData starts two members that were both alone: both say so.
func TestTwoBringData(t *testing.T) {
	all := newMembers(t, 3)
	for _, p := range all[:2] {
		out, err := lapwing(t, "backend", "init", "--state-dir", filepath.Join(p.dir, "state"), "--config-file", os.DevNull,
			"--cluster-admin-username", "admin", "--cluster-admin-password", testbackend.Password)
		if err != nil {
			t.Fatalf("init: %v\n%s", err, out)
		}
	}
	all[0].launch()
	all[1].launch()
	for i, p := range all[:2] {
		if text := p.exited(); !strings.Contains(text, fmt.Sprintf("members b%d-", i)) || !strings.Contains(text, "both have the data") {
			t.Errorf("member %d has ended so:\n%s", i, tailOf([]byte(text), 1000))
		}
	}
	if err := os.RemoveAll(filepath.Join(all[1].dir, "state")); err != nil {
		t.Fatal(err)
	}
	all.start()
}
