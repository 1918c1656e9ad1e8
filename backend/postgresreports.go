package backend

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/postgres"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// postgresHere answers how this member's copy of events stands.
func (v *clusterView) postgresHere(context.Context, *struct{}) (postgres.Status, error) {
	return v.parts.postgres.Status(), nil
}

// Postgres returns how the copy of events in PostgreSQL stands, this member first.
func (v *clusterView) Postgres(ctx context.Context) []api.PostgresStatus {
	list := []api.PostgresStatus{{Member: v.name, Status: v.parts.postgres.Status()}}
	all, err := askAll[postgres.Status](ctx, v.members, questionPostgres, struct{}{})
	if err != nil {
		v.log.Error("the other members were not asked about PostgreSQL", "err", err)
	}
	for _, one := range all {
		member := api.PostgresStatus{Member: one.name, Status: postgres.Status{Positions: []uint64{}}}
		member.Gone = one.member != nil && one.member.Silent >= goneLong
		switch {
		case one.err == nil:
			member.Status = *one.answer
		case errors.Is(one.err, cluster.ErrAway):
			member.Unknown = "it is away"
		case errors.Is(one.err, context.DeadlineExceeded), errors.Is(one.err, broker.ErrNoListener):
			member.Unknown = "it did not answer"
		default:
			member.Unknown = one.err.Error()
		}
		list = append(list, member)
	}
	return list
}

// postgresHealth returns the state of PostgreSQL for /health, which is public: it names neither server nor user.
func (v *clusterView) postgresHealth() []api.PostgresHealth {
	st := v.parts.postgres.Status()
	if !st.Configured {
		return nil
	}
	h := api.PostgresHealth{Name: "postgres"}
	if defined, ok := config.Postgres(v.config.Snapshot()); ok && v.backend.opts.Postgres.DSN == "" {
		h.Name = defined.Metadata.Name
	}
	h.Err = postgresFails(&st)
	return []api.PostgresHealth{h}
}

// postgresFails says without details what fails at present; "" for nothing.
func postgresFails(st *postgres.Status) string {
	const why = ": lapwing postgres status says why"
	switch {
	case !st.Connected:
		return "PostgreSQL is not written to at present" + why
	case st.Journal.Error != "":
		return "the journal for PostgreSQL cannot be written at present" + why
	}
	return ""
}

const (
	// reportPostgres is the check of the event about PostgreSQL, in the namespace default.
	reportPostgres          = "postgres"
	reportPostgresNamespace = "default"
	// lookAtPostgres is how often it is looked how PostgreSQL stands, and repeatPostgres how often an event with new
	// figures is made while it is in trouble.
	lookAtPostgres = 30 * time.Second
	repeatPostgres = 10 * time.Minute
	// reportPostgresTimeout bounds a look with its event.
	reportPostgresTimeout = 20 * time.Second
)

// postgresReports reports by an event that the copy in PostgreSQL is in trouble, and resolves it. One member reports for
// all: a member that is in trouble may be gone before the trouble ends.
type postgresReports struct {
	status func(context.Context) []api.PostgresStatus
	report func(ctx context.Context, namespace, check string, status uint32, output string) error
	open   func() uint32 // the status of the event
	acts   func() bool
	rare   *rarelog.Log

	said   time.Time // when the last event was made
	cancel func()
	wg     sync.WaitGroup
}

func newPostgresReports(p *parts, log *slog.Logger) *postgresReports {
	return &postgresReports{
		status: p.view.Postgres, report: p.intake.Report, acts: p.members.acts(cluster.PostgresLane),
		open: func() uint32 {
			for _, pair := range p.state.PairsOf(reportPostgresNamespace, resource.BackendEntity) {
				if pair.Check == reportPostgres {
					return pair.Status
				}
			}
			return 0
		},
		rare: rarelog.New(log.With("component", "postgres")), cancel: func() {},
	}
}

// Start is part of a part's life.
func (r *postgresReports) Start(ctx context.Context) error {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.wg.Go(func() { r.run(ctx) })
	return nil
}

// Stop waits for a report that is on its way.
func (r *postgresReports) Stop() error {
	r.cancel()
	r.wg.Wait()
	return nil
}

func (r *postgresReports) run(ctx context.Context) {
	tick := time.NewTicker(lookAtPostgres)
	defer tick.Stop()
	for {
		if r.acts() {
			r.look(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look makes an event if the status has changed, or an event is old.
func (r *postgresReports) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportPostgresTimeout)
	defer cancel()
	now, open, members := time.Now(), r.open(), r.status(ctx)
	status, output, known := troubles(members, now, open != 0)
	switch {
	case status == open && (status == 0 || now.Sub(r.said) < repeatPostgres):
		return
	case status == 0 && !known:
		return // a member that does not answer may be in trouble
	case status == 0 && !slices.ContainsFunc(members, func(m api.PostgresStatus) bool { return m.Configured }):
		output = "PostgreSQL is not configured any more"
	case status == 0:
		output = "PostgreSQL is written to, and the journal has room"
	}
	if err := r.report(ctx, reportPostgresNamespace, reportPostgres, status, output); err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			r.rare.Warn("event about PostgreSQL was not made, it is tried again", reportPostgres, "err", err)
		}
		return
	}
	r.said = now
}

// troubles joins the troubles of all members. known is false if one did not answer.
func troubles(members []api.PostgresStatus, now time.Time, open bool) (status uint32, output string, known bool) {
	known = true
	var texts []string
	for i := range members {
		m := &members[i]
		if m.Unknown != "" {
			known = known && m.Gone
			continue
		}
		one, text := m.Trouble(now, open)
		if text != "" && len(members) > 1 {
			text = m.Member + ": " + text
		}
		if text != "" {
			texts = append(texts, text)
		}
		status = max(status, one)
	}
	return status, strings.Join(texts, "\n"), known
}

var _ part = (*postgresReports)(nil)
