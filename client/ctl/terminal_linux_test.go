package ctl_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal, and what was written to it.
type terminal struct {
	t        *testing.T
	keyboard *os.File // what is written here is typed
	screen   *os.File // the command's end

	mu      sync.Mutex
	written bytes.Buffer
	more    chan struct{} // a value after each write
	closed  chan struct{}
}

func newTerminal(t *testing.T, columns, lines uint16) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, keyboard: os.NewFile(uintptr(fd), "ptmx"), more: make(chan struct{}, 1), closed: make(chan struct{})}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines})
	}
	if err == nil {
		term.screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(term.closed)
		buf := make([]byte, 4096)
		for {
			n, err := term.keyboard.Read(buf)
			if err != nil {
				return
			}
			term.mu.Lock()
			term.written.Write(buf[:n])
			term.mu.Unlock()
			select {
			case term.more <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() {
		term.keyboard.Close()
		term.screen.Close()
		<-term.closed
	})
	return term
}

// wait returns what was written, once done accepts it.
func (term *terminal) wait(done func(text string) bool) string {
	for {
		term.mu.Lock()
		text := strings.ReplaceAll(term.written.String(), "\r\n", "\n")
		term.mu.Unlock()
		if done(text) {
			return text
		}
		select {
		case <-term.more:
		case <-term.t.Context().Done():
			term.t.Fatal("the test ended")
		}
	}
}

// frame waits for a drawing of the screen with all words, and returns it.
func (term *terminal) frame(words ...string) string {
	var frame string
	term.wait(func(text string) bool {
		drawings := strings.Split(text, "\x1b[H")
		for _, drawing := range drawings[1:] {
			whole, _, ended := strings.Cut(drawing, "\x1b[J")
			has := ended
			for _, word := range words {
				has = has && strings.Contains(whole, word)
			}
			if has {
				frame = plain(whole)
			}
		}
		return frame != ""
	})
	return frame
}

var sequence = regexp.MustCompile("\x1b\\[[?0-9;]*[a-zA-Z]")

func plain(text string) string { return sequence.ReplaceAllString(text, "") }

// run starts a command in the terminal, which writes "END" after its output.
func (term *terminal) run(api *fakeAPI, args ...string) (done chan error) {
	term.t.Setenv("HOME", term.t.TempDir())
	ctx, cancel := context.WithCancel(term.t.Context())
	term.t.Cleanup(cancel)
	root := newRoot()
	root.SetIn(term.screen)
	root.SetOut(term.screen)
	root.SetErr(term.screen)
	root.SetArgs(append(args, "--api-url", api.url, "--api-key", "good-key"))
	done = make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		fmt.Fprintln(term.screen, "END")
		done <- err
	}()
	return done
}

// output runs a command to its end.
func (term *terminal) output(api *fakeAPI, args ...string) string {
	term.t.Helper()
	done := term.run(api, args...)
	text := term.wait(func(text string) bool { return strings.HasSuffix(text, "END\n") })
	if err := <-done; err != nil {
		term.t.Error(err)
	}
	return strings.TrimSuffix(text, "END\n")
}

// setTerm sets what decides about terminals in the environment.
func setTerm(t *testing.T, pager string) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	t.Setenv("COLUMNS", "")
	t.Setenv("LAPWING_PAGER", pager)
}

// TestTerminal: in a terminal, output has its width and colors, and is paged if it is longer.
func TestTerminal(t *testing.T) {
	setTerm(t, "sed s/^/paged:/")
	api := newFakeAPI(t, nil)
	for i := range 12 {
		api.putEvent("default", fmt.Sprintf("srv%d", i), "disk", 2, strings.Repeat("a long text ", 20))
	}
	for name, tt := range map[string]struct {
		lines        uint16
		env, value   string
		args         []string
		paged, color bool
		width        int
	}{
		"fits":        {lines: 40, color: true, width: 80},
		"long":        {lines: 10, color: true, width: 80 + len("paged:"), paged: true},
		"no pager":    {lines: 10, color: true, width: 80, args: []string{"--no-pager"}},
		"empty pager": {lines: 10, color: true, width: 80, env: "LAPWING_PAGER"},
		"wide":        {lines: 40, color: true, width: 400, args: []string{"-o", "wide"}},
		"COLUMNS":     {lines: 40, color: true, width: 60, env: "COLUMNS", value: "60"},
		"NO_COLOR":    {lines: 40, width: 80, env: "NO_COLOR", value: "1"},
		"dumb":        {lines: 40, width: 80, env: "TERM", value: "dumb"},
		"--color":     {lines: 40, width: 80, args: []string{"--color", "never"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv(tt.env, tt.value)
			}
			text := newTerminal(t, 80, tt.lines).output(api, append([]string{"event", "list"}, tt.args...)...)
			if got := strings.HasPrefix(text, "paged:"); got != tt.paged {
				t.Errorf("paged %v", got)
			}
			if got := strings.Contains(text, "\x1b[31mCRITICAL"); got != tt.color {
				t.Errorf("colors %v", got)
			}
			widest := 0
			for line := range strings.Lines(plain(text)) {
				widest = max(widest, len([]rune(strings.TrimSuffix(line, "\n"))))
			}
			if widest > tt.width || widest < tt.width-40 {
				t.Errorf("lines of up to %d cells, want %d:\n%s", widest, tt.width, text)
			}
		})
	}
}

// TestWatchScreen: in a terminal, the watch is a screen that it draws again, and key q ends it.
func TestWatchScreen(t *testing.T) {
	setTerm(t, "")
	api := newFakeAPI(t, nil)
	for i := range 20 {
		api.putEvent("default", fmt.Sprintf("srv%02d", i), "disk", 0, "room")
	}
	api.putEvent("default", "srv15", "ping", 1, "slow\nvery slow")
	term := newTerminal(t, 80, 14)
	done := term.run(api, "event", "list", "--watch")
	first := term.frame("srv15")
	lines := strings.Split(first, "\n")
	if len(lines) != 14 {
		t.Errorf("%d lines", len(lines))
	}
	for i, want := range map[int]string{
		1: "Events 21   critical 0   warning 1   unknown 0   ok 20   silenced 0", 3: "  Entity ", 5: "  srv15 ", 6: "  srv00 ", 13: "  … and 13 more",
	} {
		if i < len(lines) && !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d: %q, want %q", i, lines[i], want)
		}
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d cells: %s", n, line)
		}
	}

	<-api.opened
	api.putEvent("default", "srv19", "disk", 2, "full")
	if frame := term.frame("critical 1"); !strings.HasPrefix(strings.Split(frame, "\n")[5], "  srv19 ") {
		t.Errorf("the worst is not first:\n%s", frame)
	}
	api.deleteEvent("default", "srv19", "disk")
	if frame := term.frame("Events 20 "); strings.Contains(frame, "srv19") || strings.Contains(frame, "deleted") {
		t.Errorf("a deleted event is shown:\n%s", frame)
	}
	api.mu.Lock()
	api.cut = true // so the message stays
	api.mu.Unlock()
	api.endStreams()
	term.frame("live stream interrupted: ")
	if _, err := term.keyboard.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	term.wait(func(text string) bool {
		return strings.Contains(text, "\x1b[?1049l") && strings.HasSuffix(text, "END\n")
	})
}
