package backend

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/postgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Postgres has the settings of the projection into PostgreSQL.
type Postgres struct {
	// Settings has the database. Without a DSN, the definition PostgresConfig has it, if there is one. Retentions are for
	// definitions that name none.
	postgres.Settings
	Journal journal.Options
	Writer  postgres.Options
}

// day is 24 hours.
const day = 24 * time.Hour

func defaultPostgres() Postgres {
	return Postgres{
		Settings: postgres.Settings{Events: 7 * day, Changes: 400 * day, Notifications: 400 * day, PoolSize: 4},
		Journal:  journal.DefaultOptions(), Writer: postgres.DefaultOptions(),
	}
}

func (p *Postgres) check(bad *optionerr.List) {
	if p.DSN != "" {
		if err := postgres.CheckDSN(p.DSN); err != nil {
			bad.Add("postgres-dsn", "%w", err)
		}
	}
	const forEver = "for ever"
	optionerr.WithinOrZero(bad, "postgres-events-retention", p.Events, time.Hour, longest, forEver)
	optionerr.WithinOrZero(bad, "postgres-changes-retention", p.Changes, time.Hour, longest, forEver)
	optionerr.WithinOrZero(bad, "postgres-notifications-retention", p.Notifications, time.Hour, longest, forEver)
	optionerr.Within(bad, "postgres-journal-bytes", p.Journal.MaxBytes, 1<<20, 1<<50)
	optionerr.Within(bad, "postgres-journal-keep", p.Journal.Keep, time.Second, longest)
	optionerr.Within(bad, "postgres-write-interval", p.Writer.Interval, time.Millisecond, time.Minute)
	optionerr.Within(bad, "postgres-catch-up-share", p.Writer.Share, 1, 100)
	optionerr.Within(bad, "postgres-pool-size", p.PoolSize, 1, 1000)
}

// journalDir is the journal's place in the state directory.
const journalDir = "postgres-journal"

// buildJournal makes what keeps the fold's changes for PostgreSQL. It keeps none until it is switched on.
func (b *Backend) buildJournal(p *parts) (err error) {
	o := b.opts.Postgres.Journal
	o.Dir, o.Streams = filepath.Join(p.dir.path, journalDir), nil
	for i := range p.log.Partitions() {
		o.Streams = append(o.Streams, p.log.StreamID(i))
	}
	o.Logger, o.Registerer = b.log, b.opts.Registry
	p.journal, err = journal.Open(o)
	return err
}

// buildPostgres makes the writer, behind the fold.
func (b *Backend) buildPostgres(p *parts) (err error) {
	p.journal.Connect(func(partition int) uint64 { return p.fold.Position(p.journal.Name(), partition) }, p.state.LoadedAt)
	o := b.opts.Postgres.Writer
	o.Journal, o.State, o.Member = p.journal, p.state, cmp.Or(b.opts.Cluster.Name, hostname(p.id.Cluster))
	o.Owns = func(partition int) (uint64, bool) {
		return p.members.Number(partition), p.members.Owns(partition, cluster.PartitionLane(partition)) && p.members.MayAct()
	}
	o.Definitions, o.ActsDefinitions = p.config.Snapshot, p.members.acts(cluster.DefinitionsLane)
	o.Notifications, o.MemberID = p.sent, p.id.Cluster
	o.Logger, o.Registerer = b.log, b.opts.Registry
	if p.postgres, err = postgres.New(o); err != nil {
		return err
	}
	p.postgresReader, err = postgres.NewReader(postgres.ReaderOptions{
		Streams: p.journal.Streams(), Logger: b.log,
		Folded: func(partition int) uint64 { folded, _ := p.state.Folded(partition); return folded },
	})
	if err != nil {
		return err
	}
	b.push("reader of PostgreSQL", p.postgresReader.Stop)
	switch err := b.configurePostgres(p); {
	case err != nil && b.opts.Postgres.DSN != "":
		return err
	case err != nil: // a definition must not keep a backend from starting, for example if the journal's directory is a file
		b.log.Error("the definition of PostgreSQL cannot be used", "err", err)
	}
	stop := p.config.OnChange(func(c config.Change) {
		if c.Kind != config.PostgresConfigs.String() {
			return
		}
		if err := b.configurePostgres(p); err != nil {
			b.log.Error("the definition of PostgreSQL cannot be used", "name", c.Name, "err", err)
		}
	})
	b.push("definition of PostgreSQL", func() error { stop(); return nil })
	return nil
}

// configurePostgres gives the writer and the reader the settings of the options, or else of the definitions.
func (b *Backend) configurePostgres(p *parts) error {
	s := b.opts.Postgres.Settings
	switch defined, ok := config.Postgres(p.config.Snapshot()); {
	case ok && s.DSN != "":
		b.log.Warn("the definition of PostgreSQL has no effect on this backend, because --postgres-dsn is set",
			"name", defined.Metadata.Name)
	case ok:
		s.DSN, s.PoolSize = defined.Spec.DSN, cmp.Or(defined.Spec.PoolSize, s.PoolSize)
		if life := defined.Spec.MaxConnLifetime; life != "" {
			var err error
			if s.ConnLifetime, err = time.ParseDuration(life); err != nil {
				return fmt.Errorf("max_conn_lifetime: %w", err)
			}
		}
		for _, r := range []struct {
			text string
			keep *time.Duration
		}{
			{defined.Spec.EventsRetention, &s.Events}, {defined.Spec.ChangesRetention, &s.Changes},
			{defined.Spec.NotificationsRetention, &s.Notifications},
		} {
			if r.text == "" {
				continue
			}
			keep, err := resource.ParseRetention(r.text)
			if err != nil {
				return err
			}
			*r.keep = keep
		}
	}
	return errors.Join(p.postgres.Configure(s), p.postgresReader.Configure(s))
}
