package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

func clusterStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show how the members of the cluster stand, and what is wrong",
		Long: `Show how the members of the cluster stand as the backend at --api-url sees it, and what is wrong in words. It answers within
a second, even if members or the broker are down: what does not answer is shown as unknown.

The members: whether they are up and act, their agents, the free space on their disks, how far their clocks are ahead of
that of the backend that answers, the revision of their definitions, and how many messages of the event log they have not
folded, by partition. The streams: the definitions, the audit log and the partitions of the event log, with the member
that acts for a partition (its owner), the member that leads the stream, and the copies of the others.

The exit status is 0 if all is well, 2 if something is wrong, and 1 if the status cannot be read. So the command can be a
check of its own.`,
		Example: "  lapwing cluster status\n  lapwing cluster status --api-url http://backend-2:8080 --format json",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			raw, err := s.client.ClusterStatus(ctx)
			if err != nil {
				return err
			}
			status, err := decode[client.ClusterStatus](raw)
			if err != nil {
				return err
			}
			layout := func(json.RawMessage) (shown, error) { return &statusView{*status, time.Now()}, nil }
			if err := s.printPlain(raw, layout); err != nil {
				return err
			}
			if len(status.Problems) > 0 {
				return errNo
			}
			return nil
		}),
	}
	formatFlag(cmd)
	return cmd
}

func removeMemberCommand() *cobra.Command {
	var skipConfirm bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "remove a member that is gone for good",
		Long: `Remove a member that is gone for good, so that the others keep its copies of the log and the definitions. A member that is
connected is refused: stop it first. A member that is only stopped for a while needs no command.

The removed member must never come back with its old state directory. Its name may be used again: a member joins when a
backend is started with an empty state directory, --name, --cluster-listen-address and the --peers of the others. If two
had the name, NAME may also be what the broker calls the member, as the status shows it.`,
		Example: "  lapwing cluster remove backend-3\n  lapwing cluster remove backend-3 --skip-confirm",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if !skipConfirm {
				if err := s.confirm(fmt.Sprintf("Is %s gone for good? Its state directory must never be used again.", args[0])); err != nil {
					return err
				}
			}
			err := s.client.RemoveMember(ctx, args[0])
			var refused *client.Error
			if errors.As(err, &refused) && refused.Status == 404 {
				return hint(err, "See 'lapwing cluster status' for the members.")
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(s.out, "Removed")
			return nil
		}),
	}
	skipConfirmFlag(cmd, &skipConfirm)
	return cmd
}

// statusView is the status of a cluster for people.
type statusView struct {
	client.ClusterStatus
	now time.Time
}

func (v *statusView) show(s *invocation) error {
	if len(v.Problems) == 0 {
		fmt.Fprintln(s.out, paint(s.color, green, "All is well."))
	}
	for _, problem := range v.Problems {
		fmt.Fprintln(s.out, paint(s.color, red, "Problem: "+problem))
	}
	switch {
	case v.NATS != "":
		fmt.Fprintf(s.out, "List of members: number %d. NATS servers: %s. Answered by %s.\n", v.Roster, v.NATS, v.Member)
	case v.Roster > 0:
		fmt.Fprintf(s.out, "List of members: number %d. Leader of the broker: %s. Answered by %s.\n",
			v.Roster, orUnknown(v.Leader), v.Member)
	}
	fmt.Fprintln(s.out)
	if err := v.members().show(s); err != nil {
		return err
	}
	if len(v.Streams) == 0 {
		return nil
	}
	fmt.Fprintln(s.out)
	return v.streams().show(s)
}

func orUnknown(name string) string {
	if name == "" {
		return "unknown"
	}
	return name
}

func (v *statusView) members() *table {
	t := &table{columns: []column{
		{title: "Member"}, {title: "State", color: stateColor}, {title: "Version"}, {title: "Agents", right: true},
		{title: "Disk Free", right: true}, {title: "Clock", right: true}, {title: "Definitions"}, {title: "To Fold"}, {title: "API"},
	}}
	for i := range v.Members {
		m := &v.Members[i]
		if !m.Up {
			t.rows = append(t.rows, []string{m.Name, v.state(m), m.Version, "", "", "", "", "", m.APIURL})
			continue
		}
		definitions := strconv.FormatUint(m.Revision, 10)
		if m.DefinitionsLag > 0 {
			definitions += fmt.Sprintf(" (%d behind)", m.DefinitionsLag)
		}
		var lag []string
		for _, n := range m.FoldLag {
			lag = append(lag, strconv.FormatUint(n, 10))
		}
		t.rows = append(t.rows, []string{
			m.Name, v.state(m), m.Version, strconv.Itoa(m.Sessions), fmt.Sprintf("%.1f GB", float64(m.DiskFree)/1e9),
			clock(m.ClockSkewSeconds), definitions, strings.Join(lag, " "), m.APIURL,
		})
	}
	return t
}

// clock is how far a clock is ahead. Less than a second is the way of a heartbeat, too.
func clock(skew float64) string {
	if math.Abs(skew) < 1 {
		return "ok"
	}
	return fmt.Sprintf("%+.0f s", skew)
}

// state is what a member does, and for how long it has been up or away.
func (v *statusView) state(m *client.MemberStatus) string {
	switch {
	case !m.Up:
		return "away " + roughly(m.AwaySeconds)
	case m.Leaving:
		return "stopping"
	case !m.Ready:
		return "starting"
	case !m.Leased && v.NATS != "":
		return "no event log"
	case !m.Leased:
		return "no majority"
	case m.Draining:
		return "draining"
	case m.Started == 0:
		return "up"
	}
	return "up " + roughly(v.now.Sub(time.Unix(m.Started, 0)).Seconds())
}

func stateColor(state string) string {
	switch {
	case strings.HasPrefix(state, "up"):
		return green
	case state == "draining" || state == "starting" || state == "stopping":
		return yellow
	}
	return red
}

// roughly is a time in one unit.
func roughly(seconds float64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%.0f s", math.Max(0, math.Floor(seconds)))
	case seconds < 2*3600:
		return fmt.Sprintf("%.0f min", math.Floor(seconds/60))
	case seconds < 48*3600:
		return fmt.Sprintf("%.0f h", math.Floor(seconds/3600))
	}
	return fmt.Sprintf("%.0f days", math.Floor(seconds/86400))
}

func (v *statusView) streams() *table {
	t := &table{columns: []column{{title: "Stream"}, {title: "Owner"}, {title: "Leader"}, {title: "Copies"}}}
	for i := range v.Streams {
		st := &v.Streams[i]
		owner := ""
		if p := slices.IndexFunc(v.Partitions, func(p client.PartitionStatus) bool {
			return st.Holds == "partition "+strconv.Itoa(p.Partition)
		}); p >= 0 {
			owner = orNone(v.Partitions[p].Owner)
		}
		if st.Error != "" {
			t.rows = append(t.rows, []string{st.Holds, owner, "unknown", st.Error})
			continue
		}
		var copies []string
		for _, r := range st.Replicas {
			copies = append(copies, r.Member+" "+copyState(&r))
		}
		t.rows = append(t.rows, []string{st.Holds, owner, orNone(st.Leader), strings.Join(copies, ", ")})
	}
	return t
}

func orNone(name string) string {
	if name == "" {
		return "none"
	}
	return name
}

func copyState(r *client.ReplicaStatus) string {
	switch {
	case r.Offline:
		return "offline"
	case r.Lag > 0:
		return fmt.Sprintf("%d behind", r.Lag)
	case !r.Current:
		return "not current"
	}
	return "ok"
}
