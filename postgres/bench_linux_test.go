package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// BenchmarkWrite compares what the projection writes of events with an upsert for each event, which is how Sensu writes
// them: one row a check and entity, with its history in arrays and the whole event, by 50
// goroutines over 24 connections. The events are the same, 100,000 pairs in turns; the projection writes each of them to lapwing_data.event too. CPU is of the server's processes and of
// this one.
//
//	go test ./postgres -run xxx -bench Write -benchtime 300000x
func BenchmarkWrite(b *testing.B) {
	b.Run("projection", func(b *testing.B) {
		benchmarkWrite(b, func(ctx context.Context, dsn string, all []journal.Entry) {
			conn, err := connect(ctx, dsn, time.Minute)
			check(b, err)
			check(b, migrate(ctx, conn))
			s := &session{
				p: benchProjection(b), conn: conn, pairs: map[int64]known{}, has: []uint64{0}, at: []uint64{0}, owned: []bool{true},
				rosters: []uint64{1}, fresh: []bool{true}, resync: []bool{false}, helps: []bool{false},
				events:  spans{table: tableEvent, exist: map[int64]struct{}{}},
				changes: spans{table: tableChange, monthly: true, exist: map[int64]struct{}{}},
			}
			for len(all) > 0 {
				n := min(len(all), 4000) // a transaction of 400 ms at 10,000 events a second
				s.batch.reset(s.has, s.at)
				for i := range all[:n] {
					s.batch.add(0, &all[i], cutoffs{firstTime, firstTime}, s.pairs)
				}
				s.batch.to[0] = all[n-1].Seq
				check(b, s.write(ctx))
				all = all[n:]
				copy(s.at, s.has)
			}
			check(b, conn.Close(ctx))
		})
	})
	b.Run("upsert for each event", func(b *testing.B) {
		benchmarkWrite(b, func(ctx context.Context, dsn string, all []journal.Entry) {
			config, err := pgxpool.ParseConfig(dsn)
			check(b, err)
			config.MaxConns = 24
			pool, err := pgxpool.NewWithConfig(ctx, config)
			check(b, err)
			_, err = pool.Exec(ctx, `CREATE TABLE naive (namespace text, check_name text, entity_name text, status int, last_ok bigint,
				occurrences int, occurrences_wm int, history_index int DEFAULT 1, history_status int[], history_ts bigint[], serialized bytea,
				PRIMARY KEY (namespace, check_name, entity_name))`)
			check(b, err)
			var writers sync.WaitGroup
			next := make(chan *journal.Entry, 100)
			for range 50 {
				writers.Go(func() {
					for e := range next {
						_, err := pool.Exec(ctx, `INSERT INTO naive AS n VALUES ($1, $2, $3, $4, $5, $6, $7, 1, ARRAY[$4::int], ARRAY[$5::bigint], $8)
							ON CONFLICT (namespace, check_name, entity_name) DO UPDATE SET status = excluded.status, last_ok = excluded.last_ok,
							occurrences = excluded.occurrences, occurrences_wm = excluded.occurrences_wm, history_index = n.history_index % 21 + 1,
							history_status[n.history_index % 21 + 1] = excluded.status, history_ts[n.history_index % 21 + 1] = excluded.last_ok,
							serialized = excluded.serialized`, string(e.Namespace), string(e.Check), string(e.Entity), int32(e.Status), e.Executed,
							e.Occurrences, e.OccurrencesWatermark, e.Body)
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			for i := range all {
				next <- &all[i]
			}
			close(next)
			writers.Wait()
			pool.Close()
		})
	})
}

func benchProjection(b *testing.B) *Projection {
	j, err := journal.Open(journal.Options{Dir: b.TempDir(), Streams: []string{"a"}})
	check(b, err)
	p := &Projection{opts: DefaultOptions(), streams: j.Streams()}
	p.opts.Member = "bench"
	p.metrics = newMetrics(nil, p)
	return p
}

// benchmarkWrite makes b.N events and measures what writing them costs.
func benchmarkWrite(b *testing.B, write func(ctx context.Context, dsn string, all []journal.Entry)) {
	server := testpostgres.Start(b, testpostgres.Options{})
	const pairs = 100_000
	all := make([]journal.Entry, b.N)
	now := time.Now()
	for i := range all {
		entity, name := fmt.Sprint("host-", i%pairs/10), fmt.Sprint("check-", i%10)
		status := uint32(0)
		if i%97 == 0 {
			status = 2
		}
		ev := resource.Event{Timestamp: now.Unix(), ID: resource.NewEventID(), Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Command: "check-" + name, Interval: 10, Status: status,
			Subscriptions: []string{"linux"}, Executed: now.Unix(), Issued: now.Unix(), Duration: 0.01, Output: strings.Repeat("x", 200),
		}}
		e := &all[i]
		*e = journal.Entry{
			Seq: uint64(1 + i/500), Sub: i % 500, Namespace: []byte("default"), Entity: []byte(entity), Check: []byte(name),
			Received: now.UnixMilli() + int64(i/10), Executed: now.Unix(), Status: status, Occurrences: int64(i % 100), Body: ev.AppendProto(nil),
		}
		if i%97 < 2 {
			e.Flags = journal.Changed
		}
	}
	ownBefore, serverBefore := ownCPU(), serverCPU(b, server.PID())
	b.ResetTimer()
	write(context.Background(), server.DSN(), all)
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(float64((ownCPU()-ownBefore).Microseconds())/n, "own-µs/event")
	b.ReportMetric(float64((serverCPU(b, server.PID())-serverBefore).Microseconds())/n, "server-µs/event")
	b.ReportMetric(n/b.Elapsed().Seconds(), "events/s")
	conn, err := pgx.Connect(context.Background(), server.DSN())
	check(b, err)
	var wal int64
	check(b, conn.QueryRow(context.Background(), "SELECT wal_bytes::bigint FROM pg_stat_wal").Scan(&wal))
	b.ReportMetric(float64(wal)/n, "wal-B/event")
	check(b, conn.Close(context.Background()))
}

func ownCPU() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// serverCPU returns what the server's processes have used, and those that have ended.
func serverCPU(b *testing.B, postmaster int) (sum time.Duration) {
	dirs, err := os.ReadDir("/proc")
	check(b, err)
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		check(b, err)
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
		own := d.Name() == fmt.Sprint(postmaster)
		if !own && fields[1] != fmt.Sprint(postmaster) {
			continue
		}
		ticks := fields[11:13]
		if own {
			ticks = fields[11:15] // with its ended children
		}
		for _, t := range ticks {
			n, err := strconv.Atoi(t)
			check(b, err)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}
