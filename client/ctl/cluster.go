package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

const membersPath = "/api/core/v2/cluster/members"

// clusterCommand has the commands about the backends.
func clusterCommand() *cobra.Command {
	return groupOf("cluster", "show the backends of a cluster, and change its members", "status",
		clusterStatusCommand(), clusterHealthCommand(), clusterIDCommand(), drainCommand(), removeMemberCommand(), memberListCommand(),
		memberCommand("member-add NAME PEERS", "add a backend", "member-add backend4 https://10.0.0.4:2380",
			func(ctx context.Context, s *invocation, args []string) error {
				return s.client.Do(ctx, http.MethodPost, membersPath+"?"+url.Values{"peer-addrs": {args[1]}}.Encode(), nil, nil)
			}, "Added"),
		memberCommand("member-update ID PEERS", "change the addresses of a backend",
			"member-update 8e9e05c52164694d https://10.0.0.5:2380",
			func(ctx context.Context, s *invocation, args []string) error {
				return s.client.Do(ctx, http.MethodPut,
					membersPath+"/"+url.PathEscape(args[0])+"?"+url.Values{"peer-addrs": {args[1]}}.Encode(), nil, nil)
			}, "Updated"),
		memberCommand("member-remove ID", "remove a backend", "member-remove 8e9e05c52164694d",
			func(ctx context.Context, s *invocation, args []string) error {
				return s.client.Do(ctx, http.MethodDelete, membersPath+"/"+url.PathEscape(args[0]), nil, nil)
			}, "Removed"),
	)
}

func memberCommand(use, short, example string, f func(ctx context.Context, s *invocation, args []string) error,
	done string) *cobra.Command {
	words := strings.Fields(use)
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  lapwing cluster " + example,
		Args:    args(words[1:]...),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if err := f(ctx, s, args); err != nil {
				return fmt.Errorf("%s: %w", short, bare(err))
			}
			fmt.Fprintln(s.out, done)
			return nil
		}),
	}
}

func clusterIDCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "id",
		Short:   "show the identity of the cluster",
		Example: "  lapwing cluster id",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			id, err := s.client.ClusterID(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.out, "sensu cluster id: %q\n", id)
			return nil
		}),
	}
}

func clusterHealthCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "health",
		Short:   "show the health of each backend",
		Example: "  lapwing cluster health\n  lapwing cluster health --format json",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			seconds := max(1, int(s.timeout.Seconds())/5)
			var raw json.RawMessage
			if err := s.client.GetPublic(ctx, "/health?timeout="+strconv.Itoa(seconds), &raw); err != nil {
				return err
			}
			if s.format == formatTabular {
				return s.printPlain(raw, healthTable)
			}
			members, err := decode[struct{ ClusterHealth json.RawMessage }](raw)
			if err != nil {
				return err
			}
			return s.printPlain(members.ClusterHealth, nil)
		}),
	}
	formatFlag(cmd)
	return cmd
}

// clusterTable is a table with the cluster's identity above it.
type clusterTable struct {
	id    uint64
	table *table
}

func (t *clusterTable) show(s *invocation) error {
	fmt.Fprintln(s.out, paint(s.color, bold, fmt.Sprintf("=== Etcd Cluster ID: %x", t.id)))
	return t.table.show(s)
}

func healthTable(raw json.RawMessage) (shown, error) {
	h, err := decode[client.Health](raw)
	if err != nil {
		return nil, err
	}
	t := &table{columns: []column{{title: "ID"}, {title: "Name"}, {title: "Error"}, {title: "Healthy", color: healthColor}}}
	for _, m := range h.ClusterHealth {
		if m.MemberIDHex == "" {
			m.MemberIDHex = strconv.FormatUint(m.MemberID, 16)
		}
		if m.Err == "" && m.Draining {
			m.Err = "draining" // no column of its own: scripts may depend on the columns
		}
		t.rows = append(t.rows, []string{m.MemberIDHex, m.Name, m.Err, yesNo(m.Healthy)})
	}
	return &clusterTable{h.Header.ClusterID, t}, nil
}

func healthColor(healthy string) string {
	if healthy == "true" {
		return green
	}
	return red
}

func memberListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "member-list",
		Short:   "list the backends of the cluster",
		Example: "  lapwing cluster member-list",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, membersPath, nil, &raw); err != nil {
				return err
			}
			return s.printPlain(raw, memberTable)
		}),
	}
	formatFlag(cmd)
	return cmd
}

func memberTable(raw json.RawMessage) (shown, error) {
	list, err := decode[client.ClusterMembers](raw)
	if err != nil {
		return nil, err
	}
	t := &table{columns: []column{{title: "ID"}, {title: "Name"}, {title: "Peer URLs"}, {title: "Client URLs"}}}
	for _, m := range list.Members {
		t.rows = append(t.rows, []string{strconv.FormatUint(m.ID, 16), m.Name, comma(m.PeerURLs), comma(m.ClientURLs)})
	}
	return &clusterTable{list.Header.ClusterID, t}, nil
}

// printPlain writes JSON that is no resource in the command's format.
func (s *invocation) printPlain(raw json.RawMessage, layout func(json.RawMessage) (shown, error)) error {
	switch s.format {
	case formatJSON, formatWrappedJSON:
		return writeJSONBlock(s.out, raw)
	case formatYAML:
		text, err := yamlOf(raw)
		if err != nil {
			return fmt.Errorf("encode as YAML: %w", err)
		}
		_, err = s.out.Write(text)
		return err
	case formatJSONPath:
		return s.printPath(s.out, raw)
	case formatName:
		return errors.New("--output name: what this command shows has no names")
	}
	block, err := layout(raw)
	if err != nil {
		return err
	}
	return s.paged(func() error { return block.show(s) })
}
