package ctl

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUpdateKeepsTheShownEnd: with another begin, a silence ends when the dialogue said.
func TestUpdateKeepsTheShownEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Unix()
		for _, c := range []struct {
			expire, expireAt, want int64
		}{{7200, now + 3600, 3600}, {-1, 0, -1}} {
			body := map[string]any{"begin": now - 3600, "expire": c.expire, "expire_at": c.expireAt}
			s := &invocation{in: strings.NewReader("now\n\n\n\n"), errOut: io.Discard}
			a := new(silencedAnswers)
			if err := a.change(updateSilencedCommand(silencedKind), s, body); err != nil {
				t.Fatal(err)
			}
			if body["begin"] != now || body["expire"] != c.want {
				t.Errorf("expire %d: begin %v, expire %v; want %d, %d", c.expire, body["begin"], body["expire"], now, c.want)
			}
		}
	})
}
