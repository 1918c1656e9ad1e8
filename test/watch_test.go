package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const watchKey = "0d6f9a52-3f0e-4c7d-9d55-0d8f5c1a7e21"

// TestWatchMovesBetweenMembers kills the member that shows events to a command line and to a page, and then stops the
// next one. Both go on at another member: they show each event, none of them again, and no older one after a newer one.
func TestWatchMovesBetweenMembers(t *testing.T) {
	all := newMembers(t, 3)
	for _, p := range all {
		p.env = []string{"LAPWING_BACKEND_CLUSTER_ADMIN_API_KEY=" + watchKey}
	}
	all.start()
	w := &watched{t: t, attempts: map[string]int{}}
	for _, p := range all {
		w.clients = append(w.clients, p.client())
	}
	w.send(0)
	line, page := w.commandLine(all), w.page(all)
	through := func(when string, members ...int) {
		t.Helper()
		for range 15 {
			for _, i := range members {
				w.send(i)
			}
		}
		w.complete(when, line, page)
	}
	through("at first", 0, 1, 2)

	begin := time.Now()
	all[0].kill(syscall.SIGKILL)
	through("after kill -9 of b0", 1, 2)
	t.Logf("after kill -9 all is shown within %s", time.Since(begin).Round(time.Millisecond))
	all[0].launch()
	all[0].ready()
	through("when b0 is back", 0, 1, 2)

	begin = time.Now()
	if err := all[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	through("after SIGSTOP of b1", 0, 2)
	t.Logf("after SIGSTOP all is shown within %s", time.Since(begin).Round(time.Millisecond))
	if err := all[1].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	all[1].ready()
	through("when b1 goes on", 0, 1, 2)

	for _, v := range []*viewer{line, page} {
		if moves := v.moved(); moves < 2 {
			t.Errorf("%s has moved %d times, want 2: its member was killed, and the next one was stopped", v.name, moves)
		}
	}
}

// watched sends events and compares what viewers show.
type watched struct {
	t        *testing.T
	clients  []*client.Client
	n        int
	attempts map[string]int // by entity: how often an event may have been taken
}

// send sends two events through a member: one of an entity of its own, and the next one of an entity that all share.
func (w *watched) send(member int) {
	w.t.Helper()
	w.n++
	name := fmt.Sprint("host-", w.n)
	w.attempts[name] = submit(w.t, w.clients[member], name, 0, name)
	submit(w.t, w.clients[member], "shared", 0, fmt.Sprint("number ", w.n))
}

// complete waits until viewers have shown all events, and checks what they have shown.
func (w *watched) complete(when string, viewers ...*viewer) {
	w.t.Helper()
	for _, v := range viewers {
		eventually(w.t, time.Minute, when+": all events are shown by "+v.name, func() bool {
			times, numbers := v.shown()
			return len(times) == len(w.attempts) && len(numbers) > 0 && numbers[len(numbers)-1] == w.n
		})
		times, numbers := v.shown()
		for name, n := range times {
			if n > w.attempts[name] {
				w.t.Errorf("%s: %s shows the event of %s %d times, and it was sent %d times", when, v.name, name, n, w.attempts[name])
			}
		}
		if !slices.IsSorted(numbers) {
			w.t.Errorf("%s: %s shows the events of one entity in the order %v", when, v.name, numbers)
		}
		if problems := v.problems(); len(problems) > 0 {
			w.t.Errorf("%s: %s says %q", when, v.name, problems)
		}
	}
}

// viewer is what shows events.
type viewer struct {
	name string

	mu      sync.Mutex     // guards the fields below
	times   map[string]int // by entity
	newest  map[string]string
	numbers []int // of the shared entity
	moves   int
	wrong   []string
}

func newViewer(name string) *viewer {
	return &viewer{name: name, times: map[string]int{}, newest: map[string]string{}}
}

func (v *viewer) shown() (times map[string]int, numbers []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.times), slices.Clone(v.numbers)
}

func (v *viewer) moved() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moves
}

func (v *viewer) problems() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.wrong)
}

// event notes an event that is shown.
func (v *viewer) event(text []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var ev resource.Event
	if err := json.Unmarshal(text, &ev); err != nil || ev.Entity == nil || ev.Check == nil {
		v.wrong = append(v.wrong, string(text))
		return
	}
	name := ev.Entity.Metadata.Name
	if v.newest[name] == string(text) {
		return // a stream that goes on may repeat events, which changes nothing on a page
	}
	v.newest[name] = string(text)
	if name != "shared" {
		v.times[name]++
		return
	}
	n := 0
	if _, err := fmt.Sscanf(ev.Check.Output, "number %d", &n); err != nil {
		v.wrong = append(v.wrong, ev.Check.Output)
	}
	v.numbers = append(v.numbers, n)
}

// commandLine runs lapwing event list --watch until the test ends.
func (w *watched) commandLine(all members) *viewer {
	w.t.Helper()
	var urls []string
	for _, p := range all {
		urls = append(urls, "http://"+p.api)
	}
	path, err := binary()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(path, "event", "list", "--watch", "--format", "json", "--api-url", strings.Join(urls, ","),
		"--api-key", watchKey)
	cmd.Env = append(os.Environ(), "HOME="+w.t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	v := newViewer("the command line")
	var reading sync.WaitGroup
	reading.Go(func() { eachLine(out, v.event) })
	reading.Go(func() { eachLine(errs, v.message) })
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
	})
	return v
}

// message notes a line for the user: only interruptions are expected.
func (v *viewer) message(line []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if strings.HasPrefix(string(line), "live stream interrupted:") {
		v.moves++
	} else {
		v.wrong = append(v.wrong, string(line))
	}
}

func eachLine(r io.Reader, f func([]byte)) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		f(lines.Bytes())
	}
}

// pageSilence is how long the page in web/ lets its stream be silent.
const pageSilence = 15 * time.Second

// page follows events as the page does, with the token of one sign-in, until the test ends. The members take turns, as
// behind a load balancer.
func (w *watched) page(all members) *viewer {
	w.t.Helper()
	tokens, err := w.clients[0].Login(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	v := newViewer("the page")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		position := ""
		for i := 0; ctx.Err() == nil; i++ {
			position = v.stream(ctx, "http://"+all[i%len(all)].api, tokens.AccessToken, position)
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	return v
}

// stream reads one live stream to its end, and returns the position at which the next one begins.
func (v *viewer) stream(ctx context.Context, url, token, position string) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(pageSilence, cancel)
	defer silent.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/lapwing/v1/namespaces/-/events/stream", nil)
	if err != nil {
		v.note(err.Error())
		return position
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if position != "" {
		request.Header.Set("Last-Event-ID", position)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		time.Sleep(100 * time.Millisecond) // as the page waits before it tries again
		return position
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusServiceUnavailable { // it starts
		time.Sleep(100 * time.Millisecond)
		return position
	}
	if answer.StatusCode != http.StatusOK {
		v.note("status " + answer.Status)
		return position
	}
	kind, first := "", position == ""
	eachLine(answer.Body, func(line []byte) {
		silent.Reset(pageSilence)
		field, value, _ := strings.Cut(string(line), ": ")
		switch {
		case field == "event":
			kind = value
		case field == "id":
			position = value
		case field == "data" && kind == "event":
			v.event([]byte(value))
		case field == "data" && kind == "synced" && !first:
			v.mu.Lock()
			v.moves++
			v.mu.Unlock()
		case field == "data" && kind != "synced":
			v.note(kind)
		}
	})
	return position
}

func (v *viewer) note(problem string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wrong = append(v.wrong, problem)
}
