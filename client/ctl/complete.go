package ctl

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// How long the shell waits for names after the tab key, and how many it gets.
const (
	completeTimeout = time.Second
	completeLimit   = 500
)

// completeNames lets the shell complete the names of a kind's resources.
func completeNames(cmd *cobra.Command, k *kind) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(k.args) || (k.Type == client.Events.Type && len(args) > 1) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, name := range namesOf(cmd, k, args) {
			if strings.HasPrefix(name, typed) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf returns the names of a kind's resources. For events they are the names of entities, and then of an entity's
// checks. After any error there are none.
func namesOf(cmd *cobra.Command, k *kind, args []string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	set, err := resolve(cmd)
	if err != nil {
		return nil
	}
	s := newInvocation(cmd, set)
	s.errOut = io.Discard // a message would stand in the middle of what the user types
	if s.client, err = set.connect(userAgent(cmd), s.errOut); err != nil {
		return nil
	}
	defer s.client.Close()
	opts := client.ListOptions{ChunkSize: completeLimit}
	nameOf := resourceName(k)
	if k.Type == client.Events.Type {
		nameOf = eventEntityName
		if len(args) > 0 {
			opts.Entity, nameOf = args[0], eventCheckName
		}
	}
	var names []string
	for raw, err := range client.All(ctx, s.client, k.Kind, s.namespace, opts) {
		if err != nil || len(names) == completeLimit {
			break
		}
		if name := nameOf(*raw); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// resourceName returns a function that reads the name from a kind's resource.
func resourceName(k *kind) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		body, err := decodeMap(raw)
		if err != nil {
			return ""
		}
		o := &object{kind: k, body: body}
		return o.findName()
	}
}

func eventEntityName(raw json.RawMessage) string {
	ev, err := decode[event](raw)
	if err != nil {
		return ""
	}
	return eventEntity(ev).Metadata.Name
}

func eventCheckName(raw json.RawMessage) string {
	ev, err := decode[event](raw)
	if err != nil {
		return ""
	}
	return eventCheck(ev).Metadata.Name
}
