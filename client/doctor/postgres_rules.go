package doctor

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// postgresRules are in the order of causes: what keeps other rules from seeing, then safety, vacuum, WAL, memory.
var postgresRules = []func(*PostgresFacts) []Finding{
	postgresStandby, postgresTrackCounts, postgresDurability, postgresSyncStandby, postgresWraparound, postgresAutovacuum,
	postgresHeldBack, postgresDeadRows, postgresTableScale, postgresInsertVacuum, postgresVacuumCost, postgresNaptime,
	postgresHotUpdates, postgresCheckpoints, postgresCheckpointTimeout, postgresCheckpointSpread, postgresWALCompression,
	postgresWALBuffers, postgresSynchronousCommit, postgresSlots, postgresReplicas, postgresSharedBuffers,
	postgresRandomPageCost, postgresIOConcurrency, postgresGrowth,
}

// change makes f a finding about a setting, with the statements that give it a better value.
func (g *PostgresFacts) change(f Finding, name, better string) []Finding {
	s := g.Settings[name]
	f.Subject, f.Present, f.Recommended = name, s.Shown, better
	f.SQL = []string{fmt.Sprintf("ALTER SYSTEM SET %s = '%s';", name, better), "SELECT pg_reload_conf();"}
	if s.Restart {
		f.SQL[1] = "-- and restart PostgreSQL"
	}
	return []Finding{f}
}

// literal and identifier quote names for SQL.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func identifier(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// qualified quotes a table's name with its schema.
func qualified(name string) string {
	schema, table, _ := strings.Cut(name, ".")
	plain := func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if strings.ContainsFunc(table, plain) {
		table = identifier(table)
	}
	return schema + "." + table
}

func postgresStandby(g *PostgresFacts) []Finding {
	if !g.Standby {
		return nil
	}
	return []Finding{{
		Severity: Critical, Subject: "standby", Title: "the server is a standby: lapwing cannot write to it",
		Detail: "It is in recovery, and only reads are possible. lapwing's journal grows until the DSN leads to the primary.",
		Advice: "Give lapwing the primary's address, or several hosts with target_session_attrs=read-write. The findings below are of the standby.",
	}}
}

func postgresTrackCounts(g *PostgresFacts) []Finding {
	if !g.is("track_counts", "off") {
		return nil
	}
	return g.change(Finding{
		Severity: Critical, Title: "statistics are off, so autovacuum never runs",
		Detail: "Autovacuum finds its tables by the counts of changed rows. Most other rules here have nothing to look at either.",
		Advice: "Turn them on; they cost little.",
	}, "track_counts", "on")
}

func postgresDurability(g *PostgresFacts) (found []Finding) {
	for name, loss := range map[string]string{
		"fsync":            "After a crash of the machine the whole database may be unreadable, also tables of others. lapwing cannot repair that.",
		"full_page_writes": "A crash of the machine can leave half-written pages, unless the file system prevents it, as ZFS does.",
	} {
		if g.is(name, "off") {
			found = append(found, g.change(Finding{
				Severity: Critical, Title: name + " is off", Detail: loss,
				Advice: "Turn it on. synchronous_commit = off has most of the speed, and loses only the last moments.",
			}, name, "on")...)
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Subject, b.Subject) })
	return found
}

func postgresSyncStandby(g *PostgresFacts) []Finding {
	names, waits := g.Settings["synchronous_standby_names"].Value, g.Settings["synchronous_commit"].Value
	answers := func(r PostgresReplica) bool { return r.Sync == "sync" || r.Sync == "quorum" }
	if !g.Monitor || names == "" || waits == "off" || waits == "local" || slices.ContainsFunc(g.Replicas, answers) {
		return nil
	}
	f := g.change(Finding{
		Severity: Critical, Title: "commits wait for a standby that is not connected",
		Detail: fmt.Sprintf("synchronous_standby_names is %s, and no synchronous standby is connected: each commit hangs.", names),
		Advice: "Start the standby again, or let commits not wait for it until it is back.",
	}, "synchronous_standby_names", "")
	f[0].Recommended = "a standby that is connected, or empty"
	return f
}

// Ages of transaction ids. The server refuses writes at 2^31.
const (
	oldTransactions       = 500e6
	veryOldTransactions   = 1200e6
	transactionIDsInTotal = 1 << 31
)

func postgresWraparound(g *PostgresFacts) []Finding {
	freezeAt, _ := g.number("autovacuum_freeze_max_age")
	if g.OldestXID < max(oldTransactions, freezeAt*1.5) && g.OldestXID < veryOldTransactions {
		return nil
	}
	f := Finding{
		Severity: Warning, Subject: "wraparound", Title: "transaction ids run out",
		Detail: fmt.Sprintf("The oldest unfrozen row, in database %s, is %s transactions old: %s of what is possible. "+
			"Autovacuum begins to freeze at %s and is behind. At the end the server takes no more writes.",
			g.OldestDB, number(g.OldestXID), percent(g.OldestXID/transactionIDsInTotal), number(freezeAt)),
		Advice: "End what holds vacuum back (long transactions, prepared ones, slots), then vacuum this database.",
		SQL:    []string{fmt.Sprintf(`\connect %s`, identifier(g.OldestDB)), "VACUUM (FREEZE, VERBOSE);"},
	}
	if g.OldestXID >= veryOldTransactions {
		f.Severity = Critical
	}
	return []Finding{f}
}

func postgresAutovacuum(g *PostgresFacts) (found []Finding) {
	if g.is("autovacuum", "off") {
		found = g.change(Finding{
			Severity: Critical, Title: "autovacuum is off",
			Detail: "Each new result of a check leaves a dead row in lapwing_data.latest. Without vacuum the table grows without end, and queries slow down with it.",
			Advice: "Turn it on. If it disturbs, make it slower by its cost limit, never off.",
		}, "autovacuum", "on")
	}
	for i := range g.Tables {
		t := &g.Tables[i]
		if v := t.Options["autovacuum_enabled"]; v != "false" && v != "off" && v != "0" {
			continue
		}
		found = append(found, Finding{
			Severity: Critical, Subject: t.Name, Title: "autovacuum is off for the table",
			Detail:  fmt.Sprintf("It has %s and %s.", count(t.Live, "live row"), count(t.Dead, "dead row")),
			Advice:  "Remove the table's setting.",
			Present: "off", Recommended: "on",
			SQL: []string{fmt.Sprintf("ALTER TABLE %s RESET (autovacuum_enabled);", qualified(t.Name))},
		})
	}
	return found
}

// Times from which an open transaction is too long, in seconds.
const (
	longIdle        = 5 * 60
	longTransaction = 30 * 60
)

func postgresHeldBack(g *PostgresFacts) (found []Finding) {
	idle := false
	for i := range g.Sessions {
		s := &g.Sessions[i]
		f := Finding{Severity: Warning, Subject: fmt.Sprint("session ", s.PID), SQL: []string{fmt.Sprintf("SELECT pg_terminate_backend(%d);", s.PID)}}
		switch {
		case s.Prepared != "" && s.Open >= longIdle:
			f.Subject, f.Title = "prepared transaction "+s.Prepared, "a prepared transaction holds vacuum back"
			f.SQL = []string{"ROLLBACK PREPARED " + literal(s.Prepared) + ";"}
			f.Advice = "Its program has forgotten it: commit it or roll it back."
		case strings.HasPrefix(s.State, "idle in transaction") && s.Idle >= longIdle:
			idle, f.Title = true, "a session is idle in a transaction and holds vacuum back"
			f.Advice = "Its program should commit before it waits. End the session."
		case s.Prepared == "" && s.Open >= longTransaction && s.Holds > 0:
			f.Title = "a long transaction holds vacuum back"
			f.Advice = "End it, or run long reports and dumps on a standby."
		default:
			continue
		}
		f.Detail = fmt.Sprintf("User %s has it open for %s (state: %s). Vacuum keeps all rows that died since: %s ago.",
			s.User, duration(s.Open), s.State, count(s.Holds, "transaction"))
		found = append(found, f)
	}
	if limit, ok := g.number("idle_in_transaction_session_timeout"); ok && limit == 0 && idle {
		found = append(found, g.change(Finding{
			Severity: Warning, Title: "nothing ends sessions that are idle in a transaction",
			Detail: "There is such a session now.", Advice: "Let the server end them. It affects all databases.",
		}, "idle_in_transaction_session_timeout", "10min")...)
	}
	return found
}

// fewRows is the size from which a table matters.
const fewRows = 10_000

func postgresDeadRows(g *PostgresFacts) (found []Finding) {
	for i := range g.Tables {
		t := &g.Tables[i]
		share := t.Dead / max(1, t.Live+t.Dead)
		if t.Live+t.Dead < fewRows || share < 0.2 {
			continue
		}
		f := Finding{
			Severity: Warning, Subject: t.Name, Title: percent(share) + " of the table's rows are dead",
			Detail: fmt.Sprintf("%s are live, %s dead; the last vacuum: %s. The table and its indexes take %s.",
				count(t.Live, "row"), number(t.Dead), age(t.Vacuumed), bytes(t.Size)),
			Advice: "Vacuum it now. If it comes again, the findings about autovacuum and open transactions have the cause.",
			SQL:    []string{fmt.Sprintf("VACUUM (ANALYZE) %s;", qualified(t.Name))},
		}
		if math.IsInf(t.Vacuumed, 1) || t.Vacuumed > 86400 {
			f.Title += ", and it was not vacuumed for long"
		}
		found = append(found, f)
	}
	return found
}

// postgresTableScale is about tables whose rows change again and again: a fifth of a large table is too many dead rows.
func postgresTableScale(g *PostgresFacts) (found []Finding) {
	for i := range g.Tables {
		t := &g.Tables[i]
		share, ok := g.option(t, "autovacuum_vacuum_scale_factor")
		if !ok || share <= 0.05 || t.Live < fewRows || t.Updates < 2*t.Live {
			continue
		}
		found = append(found, Finding{
			Severity: Warning, Subject: t.Name, Title: "vacuum of the table begins late",
			Detail: fmt.Sprintf("Its %s were updated %s times. Autovacuum waits until %s of them are dead.",
				count(t.Live, "row"), number(t.Updates), percent(share)),
			Advice:  "Vacuum it early and often: each time is then short, and its pages stay in memory.",
			Present: fmt.Sprint("autovacuum_vacuum_scale_factor ", share), Recommended: "0.05",
			SQL: []string{fmt.Sprintf("ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);", qualified(t.Name))},
		})
	}
	return found
}

// postgresInsertVacuum is about partitions, which only grow. Too rare a vacuum leaves all freezing for one long run, and
// index-only scans visit the table; too frequent a one reads a growing partition again and again.
func postgresInsertVacuum(g *PostgresFacts) (found []Finding) {
	const name, threshold = "autovacuum_vacuum_insert_scale_factor", "autovacuum_vacuum_insert_threshold"
	seen := map[string]bool{}
	for i := range g.Tables {
		t := &g.Tables[i]
		share, known := g.option(t, name)
		least, _ := g.option(t, threshold)
		if t.Parent == "" || !known || t.Live < fewRows || t.Updates+t.Deletes > t.Inserts/20 || seen[t.Parent] {
			continue
		}
		f := Finding{Severity: Warning, Advice: "Use PostgreSQL's default: a vacuum whenever a partition has grown by a fifth."}
		wrong := name
		switch {
		case least < 0:
			f.Title, wrong = "partitions of "+t.Parent+" are not vacuumed after inserts", threshold
			f.Detail = "Then index-only scans read the table too, and all rows are frozen at once, when the oldest transaction id is near."
		case share > 0.5:
			f.Title = "partitions of " + t.Parent + " are vacuumed late after inserts"
			f.Detail = fmt.Sprintf("Only growth by %s begins a vacuum. Until then index-only scans read the table too.", percent(share))
		case share < 0.05:
			f.Title = "partitions of " + t.Parent + " are vacuumed too often"
			f.Detail = fmt.Sprintf("Growth by %s begins a vacuum, though nothing in them is dead.", percent(share))
		default:
			continue
		}
		seen[t.Parent] = true
		better := map[string]string{name: "0.2", threshold: "1000"}[wrong]
		if own, ok := t.Options[wrong]; ok {
			f.Subject, f.Present, f.Recommended = t.Name, fmt.Sprint(wrong, " ", own), better
			f.SQL = []string{fmt.Sprintf("ALTER TABLE %s RESET (%s);", qualified(t.Name), wrong)}
			found = append(found, f)
			continue
		}
		return append(found, g.change(f, wrong, better)...)
	}
	return found
}

// postgresVacuumCost compares the speed of autovacuum's workers, which share the limit, with what a busy server needs.
func postgresVacuumCost(g *PostgresFacts) []Finding {
	limit, known := g.number("autovacuum_vacuum_cost_limit")
	if limit < 0 {
		limit, known = g.number("vacuum_cost_limit")
	}
	delay, ok := g.number("autovacuum_vacuum_cost_delay")
	if delay < 0 {
		delay, ok = g.number("vacuum_cost_delay")
	}
	if !ok || !known || delay == 0 {
		return nil
	}
	perSecond := limit / delay
	const byDefault, enough = 200 / 0.002, 1000 / 0.002
	if perSecond >= enough || perSecond >= byDefault && !g.busy() {
		return nil
	}
	page, _ := g.number("vacuum_cost_page_dirty")
	f := g.change(Finding{
		Severity: Warning, Title: "autovacuum is slowed down too much",
		Detail: fmt.Sprintf("With a limit of %s each %s all its workers together write at most %s/s. %s rows a second change in lapwing's tables.",
			number(limit), duration(delay), bytes(perSecond/max(1, page)*8192), number(g.changed())),
		Advice: "Raise the limit; an SSD has room for it. The delay should be PostgreSQL's default of 2 ms.",
	}, "autovacuum_vacuum_cost_limit", "2000")
	f[0].Present = fmt.Sprintf("%s per %s", number(limit), duration(delay))
	f[0].Recommended = "2000 per 2 ms"
	if delay > 0.002 {
		f[0].SQL = slices.Insert(f[0].SQL, 1, "ALTER SYSTEM SET autovacuum_vacuum_cost_delay = '2ms';")
	}
	return f
}

func postgresNaptime(g *PostgresFacts) []Finding {
	nap, ok := g.number("autovacuum_naptime")
	if !ok || nap <= 30 || nap <= 60 && !g.busy() {
		return nil
	}
	return g.change(Finding{
		Severity: Warning, Title: "autovacuum looks for work too rarely",
		Detail: fmt.Sprintf("It looks at a database each %s. lapwing changes %s rows a second.", duration(nap), number(g.changed())),
		Advice: "Let it look more often: a look without work costs nothing.",
	}, "autovacuum_naptime", "15s")
}

func postgresHotUpdates(g *PostgresFacts) (found []Finding) {
	for i := range g.Tables {
		t := &g.Tables[i]
		if t.Name != "lapwing_data.latest" || t.Updates < fewRows || t.Hot >= 0.8*t.Updates {
			continue
		}
		f := Finding{
			Severity: Warning, Subject: t.Name,
			Title: fmt.Sprintf("only %s of the updates are heap-only", percent(t.Hot/t.Updates)),
			Detail: fmt.Sprintf("Of %s, %s changed all indexes too. A heap-only update needs free space in the row's page, and no changed column with an index.",
				count(t.Updates, "update"), number(t.Updates-t.Hot)),
		}
		if fill, ok := g.option(t, "fillfactor"); !ok || fill > 50 {
			f.Present, f.Recommended = "fillfactor 100", "50"
			if ok {
				f.Present = fmt.Sprint("fillfactor ", fill)
			}
			f.Advice = "Leave space in the pages. VACUUM FULL rewrites the table at once and locks it; without it pages change as they are filled again."
			f.SQL = []string{fmt.Sprintf("ALTER TABLE %s SET (fillfactor = 50);", qualified(t.Name)), fmt.Sprintf("VACUUM FULL %s;", qualified(t.Name))}
		} else {
			f.Advice = "There is space, so an index is the cause: drop those that you have added on columns that each result changes, " +
				"as received or executed. This lists them:"
			f.SQL = []string{"SELECT indexrelid::regclass, pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = " + literal(t.Name) + "::regclass;"}
		}
		found = append(found, f)
	}
	return found
}

// walSize is the max_wal_size for which checkpoints come in time. A checkpoint begins before WAL has half of it.
func (g *PostgresFacts) walSize() float64 {
	now, _ := g.number("max_wal_size")
	better := 2 * now
	if w := g.WAL; w.Seconds > 0 {
		better = max(better, 2.5*900*w.Bytes/w.Seconds)
	}
	return max(4, math.Ceil(better/(1<<30)))
}

// fewRequests is the number of requested checkpoints that restarts, backups and people may have made.
const fewRequests = 20

func postgresCheckpoints(g *PostgresFacts) []Finding {
	size, ok := g.number("max_wal_size")
	f := Finding{Severity: Warning, Advice: "Allow more WAL. It takes this much more disk, and recovery after a crash takes longer."}
	const pages = " After each checkpoint the first change of a page writes the whole page into WAL."
	switch {
	case !ok:
		return nil
	case g.Requested >= fewRequests && g.Requested > 0.2*(g.Timed+g.Requested):
		f.Title = "checkpoints come too early"
		f.Detail = fmt.Sprintf("%s of %s did not come in time but on request. CHECKPOINT, backups and shutdowns are counted with them, "+
			"but so many are because WAL was full.", number(g.Requested), count(g.Timed+g.Requested, "checkpoint")) + pages
	case size < 1<<30:
		f.Title = "checkpoints will come early"
		f.Detail = fmt.Sprintf("WAL may take %s, less than PostgreSQL's default of 1 GB.", bytes(size)) + pages
	default:
		return nil
	}
	return g.change(f, "max_wal_size", fmt.Sprintf("%.0fGB", g.walSize()))
}

func postgresCheckpointTimeout(g *PostgresFacts) []Finding {
	every, ok := g.number("checkpoint_timeout")
	if !ok || every >= 900 || every >= 300 && !g.busy() {
		return nil
	}
	return g.change(Finding{
		Severity: Warning, Title: "checkpoints are frequent",
		Detail: fmt.Sprintf("One comes at least each %s. lapwing's tables change in the same pages again and again, so each checkpoint writes them whole into WAL.", duration(every)),
		Advice: "Make them rarer. Recovery after a crash reads more WAL; lapwing waits meanwhile and loses nothing.",
	}, "checkpoint_timeout", "15min")
}

func postgresCheckpointSpread(g *PostgresFacts) []Finding {
	target, ok := g.number("checkpoint_completion_target")
	if !ok || target >= 0.8 {
		return nil
	}
	return g.change(Finding{
		Severity: Warning, Title: "checkpoints write in bursts",
		Detail: fmt.Sprintf("A checkpoint writes its pages in %s of the time to the next; queries and commits are slow meanwhile.", percent(target)),
		Advice: "Spread the writes over nearly all of the time.",
	}, "checkpoint_completion_target", "0.9")
}

func postgresWALCompression(g *PostgresFacts) []Finding {
	pages := 8192 * g.WAL.FullPages
	if !g.is("wal_compression", "off") || g.WAL.Bytes < 1<<30 || pages < 0.3*g.WAL.Bytes {
		return nil
	}
	better := "on"
	if slices.Contains(g.Settings["wal_compression"].Choices, "lz4") {
		better = "lz4"
	}
	return g.change(Finding{
		Severity: Warning, Title: "WAL is mostly whole pages, uncompressed",
		Detail: fmt.Sprintf("%s were written in %s of WAL: %s a second.", count(g.WAL.FullPages, "whole page"), bytes(g.WAL.Bytes), bytes(g.WAL.Bytes/g.WAL.Seconds)),
		Advice: "Compress them: it costs little CPU, and often halves WAL.",
	}, "wal_compression", better)
}

func postgresWALBuffers(g *PostgresFacts) []Finding {
	size, ok := g.number("wal_buffers")
	full := g.WAL.Seconds > 0 && g.WAL.BuffersFull > g.WAL.Seconds/10
	if !ok || size >= 64<<20 || size >= 1<<20 && !full {
		return nil
	}
	return g.change(Finding{
		Severity: Warning, Title: "WAL's buffers are too small",
		Detail: fmt.Sprintf("They were full %s, and a query had to write WAL itself.", count(g.WAL.BuffersFull, "time")),
		Advice: "Make them larger.",
	}, "wal_buffers", "64MB")
}

// postgresSynchronousCommit is a note: both values are right, with different costs. It is silent about a database that
// may be of another program, for which off may be wrong.
func postgresSynchronousCommit(g *PostgresFacts) []Finding {
	s, ok := g.Settings["synchronous_commit"]
	if !ok || s.Value == "off" || len(g.Tables) == 0 {
		return nil
	}
	f := Finding{
		Severity: Fine, Subject: "synchronous_commit", Present: s.Shown, Recommended: "off in lapwing's database",
		Title: "each commit waits for the disk",
		Detail: "on: a commit is on disk before the writer goes on, and a slow sync is lapwing's lag. off: a crash of the server loses the " +
			"commits of the last moments (three times wal_writer_delay, 0.6 s by default), and never half of one.",
		Advice: "off is safe for lapwing's own tables if its journal keeps 10 minutes or more: the writer commits its position together " +
			"with the rows, so after a crash it goes back to the position that is there and writes the lost rows again. Keep on for " +
			"tables of your own in the same database. The setting is for new sessions, and lapwing keeps its own: end those, " +
			"and it connects again within seconds. The next examination sees the setting of the database, and not that of lapwing's session.",
		SQL: []string{
			fmt.Sprintf("ALTER DATABASE %s SET synchronous_commit = off;", identifier(g.Database)),
			fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lapwing' AND datname = %s;",
				literal(g.Database)),
		},
	}
	if s.Value == "remote_apply" || s.Value == "remote_write" {
		f.Detail = "Each commit waits for a standby. " + f.Detail
	}
	return []Finding{f}
}

func postgresSlots(g *PostgresFacts) (found []Finding) {
	unbounded := false
	for i := range g.Slots {
		s := &g.Slots[i]
		lost := s.Status == "lost" || s.Status == "unreserved"
		if !lost && (s.Kept < 1<<30 || s.Active && s.Kept < 10<<30) {
			continue
		}
		unbounded = true
		f := Finding{
			Severity: Warning, Subject: "slot " + s.Name, Title: "a replication slot keeps WAL",
			Detail: fmt.Sprintf("It keeps %s, and its receiver is connected but behind.", bytes(s.Kept)),
			Advice: "Find out what slows the receiver down.",
		}
		if !s.Active {
			f.Detail = fmt.Sprintf("It keeps %s, and nothing is connected to it. The disk fills until the server stops.", bytes(s.Kept))
			f.Advice = "Start its receiver again, or drop the slot if it is not needed; the receiver must then be made anew."
			f.SQL = []string{fmt.Sprintf("SELECT pg_drop_replication_slot(%s);", literal(s.Name))}
			if s.Kept >= 50<<30 {
				f.Severity = Critical
			}
		}
		if lost {
			f.Title, f.Detail = "a replication slot has lost WAL, or is about to", "Its status is "+s.Status+": the receiver must be made anew."
		}
		found = append(found, f)
	}
	if limit, ok := g.number("max_slot_wal_keep_size"); ok && limit < 0 && unbounded {
		found = append(found, g.change(Finding{
			Severity: Warning, Title: "nothing bounds the WAL that slots keep",
			Detail: "A forgotten slot fills the disk, and the server stops with it.",
			Advice: "Set a bound below the free space of WAL's disk. A slot that needs more is lost, and its receiver must be made anew.",
		}, "max_slot_wal_keep_size", "20GB")...)
	}
	return found
}

func postgresReplicas(g *PostgresFacts) (found []Finding) {
	for i := range g.Replicas {
		if s := &g.Replicas[i]; s.Behind >= 1<<30 {
			found = append(found, Finding{
				Severity: Warning, Subject: "replica " + s.Name, Title: "a replica is behind",
				Detail: fmt.Sprintf("It has %s of WAL to apply. Queries there see old states.", bytes(s.Behind)),
				Advice: "Look at its disk and CPU, and for long queries on it that hold the replay up (max_standby_streaming_delay).",
			})
		}
	}
	return found
}

func postgresSharedBuffers(g *PostgresFacts) []Finding {
	size, ok := g.number("shared_buffers")
	if !ok {
		return nil
	}
	f := Finding{Severity: Warning, Advice: "A quarter of the memory is a good start; the rest is the system's cache."}
	better := math.Round(g.Memory / 4 / (1 << 20))
	switch {
	case g.Memory == 0:
		if size > 128<<20 || g.tablesSize() < 1<<30 || g.HitShare >= 0.95 {
			return nil
		}
		better = 1024
		f.Title = "shared_buffers has PostgreSQL's small default"
		f.Detail = fmt.Sprintf("Lapwing's tables take %s, and %s of the blocks were not in it.", bytes(g.tablesSize()), percent(1-g.HitShare))
	case size > g.Memory*0.45:
		f.Title, f.Detail = "shared_buffers takes too much of the memory", fmt.Sprintf("The machine has %s.", bytes(g.Memory))
	case size < g.Memory*0.15 && size < 8<<30 && size < 2*g.Size:
		better = min(better, 8192, math.Ceil(2*g.Size/(1<<20)))
		f.Title = "shared_buffers is small"
		f.Detail = fmt.Sprintf("The machine has %s, the database %s; %s of the blocks were in shared_buffers.", bytes(g.Memory), bytes(g.Size), percent(g.HitShare))
	default:
		return nil
	}
	return g.change(f, "shared_buffers", fmt.Sprintf("%.0fMB", max(128, better)))
}

func postgresRandomPageCost(g *PostgresFacts) []Finding {
	if cost, ok := g.number("random_page_cost"); !ok || cost <= 2 {
		return nil
	}
	return g.change(Finding{
		Severity: Fine, Title: "the planner takes the disk for a spinning one",
		Detail: "It thinks that a read elsewhere costs several times one in sequence, and may read a whole partition instead of using an index.",
		Advice: "Change it if the data is on an SSD.",
	}, "random_page_cost", "1.1")
}

func postgresIOConcurrency(g *PostgresFacts) []Finding {
	if n, ok := g.number("effective_io_concurrency"); !ok || n >= 16 {
		return nil
	}
	return g.change(Finding{
		Severity: Fine, Title: "few reads are asked for ahead",
		Detail: "An SSD serves many reads at once. Queries over days of events read many pages.",
		Advice: "Change it if the data is on an SSD.",
	}, "effective_io_concurrency", "200")
}

// postgresGrowth compares the newest whole partition of each table with those before: the last one with rows is not over.
func postgresGrowth(g *PostgresFacts) (found []Finding) {
	parts := map[string][]*PostgresTable{}
	var parents []string
	for i := range g.Tables {
		if t := &g.Tables[i]; t.Parent != "" && t.Live > 0 {
			if parts[t.Parent] == nil {
				parents = append(parents, t.Parent)
			}
			parts[t.Parent] = append(parts[t.Parent], t)
		}
	}
	for _, parent := range parents {
		all := parts[parent]
		if len(all) < 5 {
			continue
		}
		newest, total := all[len(all)-2], 0.0
		var sizes []float64
		for i, t := range all {
			total += t.Size
			if i < len(all)-2 {
				sizes = append(sizes, t.Size)
			}
		}
		slices.Sort(sizes)
		usual := sizes[len(sizes)/2]
		if newest.Size < 1<<30 || newest.Size < 2*usual {
			continue
		}
		found = append(found, Finding{
			Severity: Warning, Subject: parent, Title: "the table grows faster than before",
			Detail: fmt.Sprintf("Its newest whole partition, %s, takes %s; the usual size is %s. All %s take %s, and would take %s if each were like it.",
				newest.Name, bytes(newest.Size), bytes(usual), count(float64(len(all)), "partition"), bytes(total), bytes(newest.Size*float64(len(all)))),
			Advice: "Find the checks with more or larger results. Make room on the disk, or keep fewer partitions.",
			SQL:    []string{fmt.Sprintf("SELECT pair_id, count(*) FROM %s GROUP BY 1 ORDER BY 2 DESC LIMIT 20;", qualified(newest.Name))},
		})
	}
	return found
}
