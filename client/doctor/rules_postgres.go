package doctor

import "fmt"

// This file has the rules about the copy of events in PostgreSQL, as a backend writes it. No event waits for it.

// postgresLate is how far PostgreSQL may be behind, in seconds: a fail-over takes a minute or two.
const postgresLate = 300.0

// postgresJournal checks whether changes are lost on their way to PostgreSQL.
func postgresJournal(e *exam) {
	dropped, gaps := e.grown("lapwing_postgres_journal_dropped_total"), e.grown("lapwing_postgres_gaps_total")
	if n := e.grown("lapwing_postgres_refused_total"); n > 0 {
		e.find(Finding{
			Severity: Critical, Part: Postgres, Subject: "refused",
			Title:  "PostgreSQL refuses the content of changes",
			Detail: fmt.Sprintf("%s left out in %s.", were(n, "change"), duration(e.seconds)),
			Advice: "The view lapwing.gaps and the log have the reason: often a constraint or trigger that was added to a table of " +
				"lapwing_data. After 1,000 such changes an hour nothing more is written.",
		})
	}
	if dropped > 0 || gaps > 0 {
		e.find(Finding{
			Severity: Critical, Part: Postgres, Subject: "journal", Because: e.because(Disk),
			Title: "PostgreSQL will never have some changes",
			Detail: fmt.Sprintf("%s removed from the journal, and %s found, in %s. %s", were(dropped, "change"), count(gaps, "gap"),
				duration(e.seconds), e.journalUse()),
			Advice: "The view lapwing.gaps says of which times. Start PostgreSQL, or see what slows it down; --postgres-journal-bytes " +
				"gives more room on disk.",
		})
		return
	}
	if n := e.grown("lapwing_postgres_journal_failures_total"); n > 0 {
		e.find(Finding{
			Severity: Warning, Part: Postgres, Subject: "journal", Because: e.because(Disk),
			Title:  "the journal for PostgreSQL cannot be written",
			Detail: fmt.Sprintf("%s failed in %s, and were tried again.", count(n, "write"), duration(e.seconds)),
			Advice: "The log has the error. Check whether the disk is full, read-only or broken.",
		})
	}
	owed, most := e.after.sum("lapwing_postgres_journal_owed_bytes"), e.after.sum("lapwing_postgres_journal_max_bytes")
	if most > 0 && owed >= nearLimit*most {
		f := Finding{
			Severity: Warning, Part: Postgres, Subject: "journal",
			Title:  "the journal for PostgreSQL fills up",
			Detail: e.journalUse() + " When it is full, the oldest changes are removed.",
			Advice: "Start PostgreSQL, or see what slows it down; --postgres-journal-bytes gives more room on disk.",
		}
		if owed >= atLimit*most {
			f.Severity, f.Title = Critical, "the journal for PostgreSQL is as good as full"
		}
		e.find(f)
	}
}

// postgresBehind checks whether PostgreSQL takes the changes.
func postgresBehind(e *exam) {
	behind := e.after.sum("lapwing_postgres_behind_seconds")
	away := func(s *Scrape) bool {
		return s.sum("lapwing_postgres_configured") > 0 && s.sum("lapwing_postgres_connected") == 0
	}
	if behind < postgresLate && !(away(e.before) && away(e.after)) {
		return
	}
	f := Finding{
		Severity: Warning, Part: Postgres, Because: e.because(CPU, Disk),
		Title: "PostgreSQL lags behind",
		Detail: fmt.Sprintf("It lacks %s. %s changes/s are written, and %s/s come to the journal. %s", duration(behind),
			number(e.rate("lapwing_postgres_changes_total")), number(e.rate("lapwing_postgres_journal_changes_total")), e.journalUse()),
		Advice: "See what slows PostgreSQL down. While it catches up, --postgres-catch-up-share gives the writer more time.",
	}
	if e.after.sum("lapwing_postgres_connected") == 0 {
		f.Because = ""
		f.Title = "PostgreSQL is not written to"
		f.Detail = fmt.Sprintf("It lacks %s; %s failed in %s. %s", duration(behind),
			count(e.grown("lapwing_postgres_failures_total"), "attempt"), duration(e.seconds), e.journalUse())
		f.Advice = "lapwing postgres status has the error. Alerts go on, and the changes are written later."
	}
	e.find(f)
}

// journalUse says how full the journal is, and when it will be full at the present rate.
func (e *exam) journalUse() string {
	const owedBytes = "lapwing_postgres_journal_owed_bytes"
	owed, most := e.after.sum(owedBytes), e.after.sum("lapwing_postgres_journal_max_bytes")
	text := fmt.Sprintf("The journal keeps %s for it, of at most %s", bytes(owed), bytes(most))
	if e.seconds > 0 && owed > e.before.sum(owedBytes) && owed < most {
		text += fmt.Sprintf(", and is full in %s if it grows on like this", duration((most-owed)/((owed-e.before.sum(owedBytes))/e.seconds)))
	}
	return text + "."
}
