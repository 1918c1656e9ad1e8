package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
)

var (
	postgresKills     = flag.Int("postgres-kills", 3, "members that TestRealPostgresOutlivesMembers kills, one after the other")
	postgresKillEvery = flag.Duration("postgres-kill-every", 0, "least time between these kills")
	postgresSenders   = flag.Int("postgres-senders", 4, "clients that send events to each member")
)

// numbered sends events of one entity to one member, one after the other, each with its number as its output. An event
// whose request failed is not sent again: it may be in the log.
type numbered struct {
	process *process
	entity  string

	mu       sync.Mutex // guards the fields below
	accepted []int
}

func (n *numbered) run(stop <-chan struct{}) {
	client := n.process.client()
	for i := 1; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		ev := testbackend.Event(n.entity, "c", uint32(i/5%2), int64(i))
		ev.Check.Output = fmt.Sprint(i)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := client.Do(ctx, http.MethodPut, "/api/core/v2/namespaces/default/events/"+n.entity+"/c", ev, nil)
		cancel()
		n.mu.Lock()
		if err == nil {
			n.accepted = append(n.accepted, i)
		}
		n.mu.Unlock()
	}
}

func (n *numbered) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.accepted)
}

// TestRealPostgresOutlivesMembers kills the members of a cluster in turns while events come, and the server once. Each
// accepted event is in PostgreSQL once, and a check's events are in their order.
func TestRealPostgresOutlivesMembers(t *testing.T) {
	server := testpostgres.Start(t, testpostgres.Options{})
	all := newMembers(t, 3, "--postgres-dsn", server.DSN(), "--postgres-write-interval", "50ms")
	all.start()
	stop := make(chan struct{})
	var senders []*numbered
	var under sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); under.Wait() })
	t.Cleanup(end)
	for i, p := range all {
		for k := range *postgresSenders {
			n := &numbered{process: p, entity: fmt.Sprintf("web%d-%d", i, k)}
			senders = append(senders, n)
			under.Go(func() { n.run(stop) })
		}
	}
	accepted := func() (sum int) {
		for _, n := range senders {
			sum += n.count()
		}
		return sum
	}
	more := func(n int) {
		t.Helper()
		before := accepted()
		eventually(t, time.Minute, "events are accepted", func() bool { return accepted() >= before+n })
	}
	more(300)
	began := time.Now()
	for kill := range *postgresKills {
		next := time.Now().Add(*postgresKillEvery)
		victim := all[kill%len(all)]
		victim.kill(syscall.SIGKILL)
		more(300)
		if kill == 1 {
			server.Kill(t)
			more(100)
			server.StartAgain(t)
		}
		victim.launch()
		victim.ready()
		more(300)
		eventually(t, *postgresKillEvery+time.Minute, "the time for the next kill", func() bool { return time.Now().After(next) })
	}
	end()
	t.Logf("%d events accepted in %.0f s", accepted(), time.Since(began).Seconds())
	conn, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, n := range senders {
		eventually(t, time.Minute, "PostgreSQL has the events of "+n.entity, func() bool { return n.missing(t, conn) == 0 })
	}
	for what, sql := range map[string]string{
		"events that are there twice": `SELECT count(*) FROM (SELECT entity, output FROM lapwing.events
			WHERE "check" = 'c' GROUP BY 1, 2 HAVING count(*) > 1) x`,
		"records that are there twice": `SELECT count(*) FROM (SELECT event FROM lapwing.events GROUP BY 1 HAVING count(*) > 1) x`,
		"events out of order": `SELECT count(*) FROM (SELECT output::int < lag(output::int) OVER (PARTITION BY pair_id ORDER BY seq, sub) AS bad
			FROM lapwing_data.event WHERE output ~ '^[0-9]+$') x WHERE bad`,
		"latest events that are not the last ones": `SELECT count(*) FROM lapwing.current_events c WHERE "check" = 'c'
			AND output::int <> (SELECT max(output::int) FROM lapwing.events e WHERE e.entity = c.entity AND e."check" = 'c')`,
		"changes that are missing or too many": `SELECT count(*) FROM (SELECT entity, count(*) FILTER (WHERE status IS DISTINCT FROM was) AS n
			FROM (SELECT entity, status, lag(status) OVER (PARTITION BY entity ORDER BY output::int) AS was FROM lapwing.events WHERE "check" = 'c') x
			GROUP BY 1) e WHERE n <> (SELECT count(*) FROM lapwing.state_changes s WHERE s.entity = e.entity AND s."check" = 'c')`,
		"gaps": `SELECT count(*) FROM lapwing.gaps`,
	} {
		var n int
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n != 0 {
			t.Errorf("there are %d %s", n, what)
		}
	}
}

// missing returns how many accepted events PostgreSQL does not have.
func (n *numbered) missing(t *testing.T, conn *pgx.Conn) (missing int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	err := conn.QueryRow(t.Context(), `SELECT count(*) FROM unnest($1::int[]) AS a(i) WHERE NOT EXISTS (
		SELECT FROM lapwing.events WHERE entity = $2 AND "check" = 'c' AND output = a.i::text)`, n.accepted, n.entity).Scan(&missing)
	if err != nil {
		t.Fatal(errors.Join(err, errors.New(strings.TrimSpace(n.entity))))
	}
	return missing
}
