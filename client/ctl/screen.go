package ctl

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Escape sequences of terminals.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// screen is the terminal's alternate screen, which a command draws again and again.
type screen struct {
	out     io.Writer
	keys    chan byte // what the user types
	restore func()
}

// drawable reports whether the output can have a screen.
func (s *invocation) drawable() bool { return s.height > 0 && os.Getenv("TERM") != "dumb" }

// openScreen opens the screen. The caller closes it.
func (s *invocation) openScreen() *screen {
	scr := &screen{out: rawStream(s.out), keys: make(chan byte, 16), restore: func() {}}
	if in, ok := s.in.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		if old, err := term.MakeRaw(int(in.Fd())); err == nil {
			scr.restore = func() { _ = term.Restore(int(in.Fd()), old) } // nothing is left to do if it fails
			// The read ends with the process: nothing can end it earlier.
			go readKeys(in, scr.keys)
		}
	}
	fmt.Fprint(scr.out, enterScreen)
	return scr
}

func (scr *screen) close() {
	fmt.Fprint(scr.out, leaveScreen)
	scr.restore()
}

// size returns the terminal's columns and lines now.
func (scr *screen) size() (width, height int) {
	if width, height = terminalSize(scr.out); width > 0 && height > 0 {
		return width, height
	}
	return 80, 24
}

// draw replaces what the screen shows. Lines below its end are left out: they would move it.
func (scr *screen) draw(lines []string) {
	_, height := scr.size()
	lines = lines[:min(len(lines), height)]
	var b bytes.Buffer
	b.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + clearLine)
	}
	b.WriteString(clearBelow)
	b.WriteTo(scr.out)
}

// quits reports whether a key ends a command that has the screen. Ctrl-C and Ctrl-D are plain bytes there.
func quits(key byte) bool { return key == 'q' || key == 'Q' || key == 3 || key == 4 }

func readKeys(in *os.File, keys chan<- byte) {
	var buf [1]byte
	for {
		if n, err := in.Read(buf[:]); err != nil || n == 0 {
			return
		}
		keys <- buf[0]
	}
}
