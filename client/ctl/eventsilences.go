package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lapwing-monitoring/lapwing/client"
)

// mostSilences bounds the silences of an event that are looked up.
const mostSilences = 20

// withSilences returns a kind with the silences of an event in its info block, each on a line behind Silenced.
// What cannot be looked up stays a name.
func (s *invocation) withSilences(ctx context.Context, k *kind, raw json.RawMessage) *kind {
	ev, err := decode[event](raw)
	if err != nil || len(eventCheck(ev).Silenced) == 0 {
		return k // printing it reports the error
	}
	var lines []infoLine
	for i, name := range eventCheck(ev).Silenced {
		text := "silence " + name
		if err == nil && i < mostSilences {
			var one *silenced
			if one, err = client.Get(ctx, s.client, client.Silences, s.namespace, name); hidden(err) { // or it has just ended
				err = nil
			}
			if err != nil {
				fmt.Fprintf(s.errOut, "Warning: silences are shown by their names only: %v\n", err)
			}
			if err == nil && one != nil {
				text = silenceText(one)
			}
		}
		lines = append(lines, infoLine{"Silenced By", text})
	}
	with := *k
	with.info = func(raw json.RawMessage) (shown, error) {
		what, err := k.info(raw)
		if block, ok := what.(*infoBlock); ok {
			at := slices.IndexFunc(block.lines, func(l infoLine) bool { return l.label == "Silenced" })
			block.lines = slices.Insert(block.lines, at+1, lines...)
		}
		return what, err
	}
	return &with
}
