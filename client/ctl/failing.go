package ctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// failingLong is how long a handler must have failed before lists of events say so. An attempt that succeeds a moment
// later is no news.
const failingLong = time.Minute

// tellFailing says on a terminal, behind failing events, that their alerts do not get through. It makes one request, and
// says nothing to users who may not see what waits.
func (s *invocation) tellFailing(ctx context.Context, namespace string) {
	if s.format != formatTabular || !isTerminal(s.out) {
		return
	}
	if list, err := s.client.Waiting(ctx, namespace, "", 1); err == nil {
		if text := failingText(list, namespace == "", time.Now()); text != "" {
			fmt.Fprintln(s.errOut, text)
		}
	}
}

// failingText says which handlers have failed for a while, the one that began first by name; "" if none has.
func failingText(list []client.Waiting, namespaces bool, now time.Time) string {
	failing := slices.DeleteFunc(slices.Clone(list), func(w client.Waiting) bool {
		return w.FailingSince == 0 || now.Sub(time.UnixMilli(w.FailingSince)) < failingLong
	})
	if len(failing) == 0 {
		return ""
	}
	first := slices.MinFunc(failing, func(a, b client.Waiting) int { return cmp.Compare(a.FailingSince, b.FailingSince) })
	since := time.UnixMilli(first.FailingSince).In(now.Location())
	clock := since.Format("15:04")
	if since.Format(time.DateOnly) != now.Format(time.DateOnly) {
		clock = since.Format("2006-01-02 15:04")
	}
	command := "lapwing handler waiting " + first.Handler
	if namespaces {
		command += " --namespace " + first.Namespace
	}
	who := fmt.Sprintf("handler %s has failed since %s", printable(first.Handler), clock)
	if n := len(failing); n > 1 {
		who = fmt.Sprintf("%d handlers fail, %s since %s", n, printable(first.Handler), clock)
		command = "lapwing handler waiting"
		if namespaces {
			command += " --all-namespaces"
		}
	}
	return fmt.Sprintf("alerts do not get through: %s (see: %s)", who, command)
}
