// Package report computes what the changes of checks' states say about a time: availability, the times to acknowledge
// and to resolve incidents, the noisiest checks, and flapping.
//
// The API calls Run with a Source: the embedded history of package state, or another store of the same changes. Run
// promises the same report from every Source that has the same changes, whatever the order of its Histories: it computes
// with whole milliseconds. It reads one History at a time and keeps only its rows. report/page writes a report for people;
// rights and selectors are the caller's task. Package reporttest has the tests that every Source must pass.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Range is a namespace and a time: from Since, up to and without Until. Both are whole milliseconds.
type Range struct {
	Namespace    string
	Since, Until time.Time
}

// Change is a new state of a check, in force until the next change.
type Change struct {
	Time     time.Time // when the backend received the event, in whole milliseconds
	Status   uint32
	Flapping bool
	Silenced bool
	Missing  bool // no result came in time
	Deleted  bool // the event was deleted; all but Time is empty
}

// History has the changes of one check of an entity, in the order of the event log: those in the range, and the newest of
// those before Since, which is the state in force at Since. Times need not ascend, because backends have clocks of their
// own; the order counts. A reader must not keep Changes after the iteration has gone on.
type History struct {
	Namespace, Entity, Check string
	Changes                  []Change
}

// Source has the changes of checks' states.
type Source interface {
	// Begin returns the time from which the changes of a namespace are complete.
	Begin(ctx context.Context, namespace string) (time.Time, error)
	// Changes yields the History of each check that has one and that keep accepts, in any order. After an error it ends.
	Changes(ctx context.Context, in Range, keep func(namespace, entity, check string) bool) iter.Seq2[History, error]
}

// Kind says what a report is about: the order of its rows, and which rows it leaves out. All rows have all figures.
type Kind string

// The kinds of reports, and what their first rows have most of.
const (
	Availability Kind = "availability" // downtime
	Response     Kind = "response"     // incidents
	Noisiest     Kind = "noisiest"     // changes of status
	Flapping     Kind = "flapping"     // time in flapping
	Incidents    Kind = "incidents"    // duration: each row is one incident of a check
)

// Kinds has all kinds.
var Kinds = []Kind{Availability, Response, Noisiest, Flapping, Incidents}

// What a row is of: a check of an entity, an entity, a check on all entities, or a value of a label (ByLabel and its
// name).
const (
	ByPair   = "pair"
	ByEntity = "entity"
	ByCheck  = "check"
	ByLabel  = "label:"
)

// BandLength is how many equal parts a row's Band divides the time into.
const BandLength = 60

// Where changes come from.
const (
	Embedded   = "embedded"
	PostgreSQL = "postgresql"
)

// ErrPlace says that a place in a history cannot be read.
var ErrPlace = errors.New("not a place in a history")

// Coverage says which changes of a time a Source has.
type Coverage struct {
	// Reason is why the Source cannot be used now; "" if it can.
	Reason string
	// Begin is the time from which the changes are complete.
	Begin time.Time
	// Gaps counts the parts of the time whose changes the Source will never have.
	Gaps int
}

// Query says what to report.
type Query struct {
	Kind Kind
	By   string
	Range
	// Label returns the value of the label in By; "" for none. Required for ByLabel.
	Label func(entity, check string) string
	// Keep selects checks. Default: all.
	Keep func(namespace, entity, check string) bool
	// SkipSilenced leaves silenced time out of the uptime, and out of the durations of Incidents.
	SkipSilenced bool
	// Limit bounds the rows of the report; 0 is all.
	Limit int
	// MaxRows bounds the rows in memory. Run fails with ErrTooLarge when there are more; 0 is no bound.
	MaxRows int
}

// ErrTooLarge is returned for a report with too many rows.
var ErrTooLarge = errors.New("the report has too many rows")

// NoHistoryError is returned for a time before the begin of the history.
type NoHistoryError struct{ Begin time.Time }

func (e *NoHistoryError) Error() string {
	return "the history begins at " + e.Begin.UTC().Format(time.RFC3339) + ", which is not before the end of the report"
}

// Report is a report.
type Report struct {
	Kind      Kind      `json:"kind"`
	By        string    `json:"by"`
	Namespace string    `json:"namespace"`
	Since     time.Time `json:"since"` // as asked for, in whole milliseconds
	Until     time.Time `json:"until"`
	// Begin is where the figures begin: Since, or later if the history is shorter.
	Begin time.Time `json:"begin"`
	// FirstData is when the first state of a check is known; null if none is.
	FirstData    *time.Time `json:"first_data"`
	SkipSilenced bool       `json:"skip_silenced"`
	// Source is set by the caller: where the changes come from, Embedded or PostgreSQL. SourceNote says why PostgreSQL was
	// not used, or what it lacks.
	Source     string `json:"source"`
	SourceNote string `json:"source_note,omitempty"`
	Total      Row    `json:"total"`
	Rows       []Row  `json:"rows"`
	More       int    `json:"more"` // rows that the limit left out
}

// Row has the figures of some checks. Durations are milliseconds. OK to NoData make up the whole time.
type Row struct {
	Entity string `json:"entity,omitempty"`
	Check  string `json:"check,omitempty"`
	Label  string `json:"label,omitempty"`
	Pairs  int64  `json:"pairs"` // checks of entities

	OK       int64 `json:"ok_ms"`
	Warning  int64 `json:"warning_ms"`
	Critical int64 `json:"critical_ms"`
	Unknown  int64 `json:"unknown_ms"`
	Missing  int64 `json:"missing_ms"` // no result came in time
	NoData   int64 `json:"no_data_ms"` // before the first change, or after a deletion
	// Silenced and Flapping overlap with OK to Missing. SilencedOK is the part of Silenced that is in OK.
	Silenced   int64 `json:"silenced_ms"`
	SilencedOK int64 `json:"silenced_ok_ms"`
	Flapping   int64 `json:"flapping_ms"`
	// UptimePPM is the share of OK in the known time, in millionths, rounded down; null if no time counts.
	UptimePPM *int64 `json:"uptime_ppm"`

	Changes   int64 `json:"changes"`   // of the status
	Incidents int64 `json:"incidents"` // that began in the time
	Carried   int64 `json:"carried"`   // incidents in force at the begin
	Open      int64 `json:"open"`      // incidents in force at the end
	// Acknowledged and Resolved count only incidents that began in the time, as do the means.
	Acknowledged int64  `json:"acknowledged"`
	Resolved     int64  `json:"resolved"`
	MTTA         *int64 `json:"mtta_ms"`
	MTTR         *int64 `json:"mttr_ms"`
	Longest      int64  `json:"longest_ms"` // the longest incident, within the time
	Episodes     int64  `json:"episodes"`   // of flapping that began in the time

	// Incident is set in reports of incidents. Then the times in states are 0, and Band is without states.
	Incident *Incident `json:"incident,omitempty"`

	// Band has a letter for each part of the time, of the worst state of any check in it: o OK, w warning, u unknown, m
	// missing, c critical, and - for no data.
	Band string `json:"band"`

	acknowledging, resolving int64 // sums of MTTA and MTTR
	band                     [BandLength]severity
}

// Incident is one incident of a check, as far as it is within the time.
type Incident struct {
	Begin   time.Time  `json:"begin"`
	End     *time.Time `json:"end"`     // null if it is open
	Carried bool       `json:"carried"` // it began before Begin, which is where the figures begin
	Deleted bool       `json:"deleted"` // its event was deleted, which ended it: nothing resolved it
	// Duration is from Begin to End, or to the end of the report; without silenced time if that is left out.
	Duration int64 `json:"duration_ms"`
	// Status and Missing are of its worst state.
	Status  uint32 `json:"status"`
	Missing bool   `json:"missing"`
}

type severity uint8

const bandLetters = "-owumc" // by severity

// state is the state of a check at a moment.
type state struct {
	known bool
	Change
}

func (s *state) failing() bool { return s.known && (s.Status != 0 || s.Missing) }

func (s *state) severity() severity {
	switch {
	case !s.known:
		return 0
	case s.Missing:
		return 4
	case s.Status == 0:
		return 1
	case s.Status == 1:
		return 2
	case s.Status == 2:
		return 5
	}
	return 3
}

// rowKey is the key of a row; fields that By does not name are empty.
type rowKey struct{ entity, check, label string }

// Run computes a report.
func Run(ctx context.Context, src Source, q Query) (*Report, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	begin, err := src.Begin(ctx, q.Namespace)
	if err != nil {
		return nil, fmt.Errorf("find the begin of the history: %w", err)
	}
	in := Range{q.Namespace, ceil(q.Since), ceil(q.Until)}
	out := &Report{Kind: q.Kind, By: q.By, Namespace: q.Namespace, Since: in.Since.UTC(), Until: in.Until.UTC(),
		SkipSilenced: q.SkipSilenced, Rows: []Row{}}
	if begin = ceil(begin); in.Since.Before(begin) {
		in.Since = begin
	}
	if !in.Since.Before(in.Until) {
		return nil, &NoHistoryError{in.Since}
	}
	out.Begin = in.Since.UTC()
	keep := q.Keep
	if keep == nil {
		keep = func(string, string, string) bool { return true }
	}
	span := span{in.Since.UnixMilli(), in.Until.UnixMilli()}
	rows := table{report: out, query: &q, shared: map[rowKey]*Row{}}
	first := span.end
	for h, err := range src.Changes(ctx, in, keep) {
		if err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		known := span.known(h.Changes)
		if known == span.end {
			continue // it did not exist in the time
		}
		first = min(first, known)
		(&walk{span: span, row: &out.Total}).pair(h.Changes)
		if err := rows.add(&h, span); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	if first < span.end {
		t := time.UnixMilli(first).UTC()
		out.FirstData = &t
	}
	out.Total.finish(q.SkipSilenced)
	rows.finish()
	return out, nil
}

// table gathers the rows of a report.
type table struct {
	report *Report
	query  *Query
	shared map[rowKey]*Row // of several checks
}

// add adds a check to its row.
func (t *table) add(h *History, in span) error {
	q := t.query
	if q.Kind == Incidents {
		w := walk{span: in, row: new(Row), each: func(r *Row) {
			r.Entity, r.Check, r.Pairs = strings.Clone(h.Entity), strings.Clone(h.Check), 1
			if q.SkipSilenced {
				r.Incident.Duration -= r.Silenced
			}
			if r.Incident.Duration > 0 || !q.SkipSilenced {
				t.keep(r)
			}
		}}
		w.pair(h.Changes)
		if q.Limit > 0 && len(t.report.Rows) >= 2*q.Limit+100 {
			t.cut()
		}
		return t.bound(len(t.report.Rows))
	}
	if q.By == ByPair { // the row is its own
		r := Row{Entity: strings.Clone(h.Entity), Check: strings.Clone(h.Check)}
		(&walk{span: in, row: &r}).pair(h.Changes)
		t.keep(&r)
		if q.Limit > 0 && len(t.report.Rows) >= 2*q.Limit+100 {
			t.cut()
		}
		return t.bound(len(t.report.Rows))
	}
	k := q.key(h)
	r, ok := t.shared[k]
	if !ok {
		k = rowKey{strings.Clone(k.entity), strings.Clone(k.check), strings.Clone(k.label)}
		r = &Row{Entity: k.entity, Check: k.check, Label: k.label}
		t.shared[k] = r
	}
	(&walk{span: in, row: r}).pair(h.Changes)
	return t.bound(len(t.shared))
}

func (t *table) bound(rows int) error {
	if t.query.MaxRows > 0 && rows > t.query.MaxRows {
		return fmt.Errorf("%w: more than %d", ErrTooLarge, t.query.MaxRows)
	}
	return nil
}

// keep adds a complete row to the report, if the report shows it.
func (t *table) keep(r *Row) {
	if t.query.Kind.shows(r) {
		r.finish(t.query.SkipSilenced)
		t.report.Rows = append(t.report.Rows, *r)
	}
}

// cut orders the rows and drops those beyond the limit.
func (t *table) cut() {
	rep := t.report
	slices.SortFunc(rep.Rows, func(a, b Row) int { return t.query.Kind.compare(&a, &b) })
	if limit := t.query.Limit; limit > 0 && len(rep.Rows) > limit {
		rep.More += len(rep.Rows) - limit
		rep.Rows = rep.Rows[:limit]
	}
}

func (t *table) finish() {
	for _, r := range t.shared {
		t.keep(r)
	}
	t.cut()
}

// ceil returns the next whole millisecond.
func ceil(t time.Time) time.Time {
	if whole := time.UnixMilli(t.UnixMilli()); whole.Equal(t) {
		return whole
	}
	return time.UnixMilli(t.UnixMilli() + 1)
}

func (q *Query) check() error {
	if !slices.Contains(Kinds, q.Kind) {
		return fmt.Errorf("report: %q is no kind of report", q.Kind)
	}
	if q.By == "" {
		q.By = ByPair
	}
	name, label := strings.CutPrefix(q.By, ByLabel)
	switch {
	case label && (name == "" || q.Label == nil), !label && q.By != ByPair && q.By != ByEntity && q.By != ByCheck:
		return fmt.Errorf("report: by %q: it must be %s, %s, %s or %sNAME", q.By, ByPair, ByEntity, ByCheck, ByLabel)
	case q.Kind == Incidents && q.By != ByPair:
		return fmt.Errorf("report: by %q: a row of %s is always an incident of a check", q.By, Incidents)
	case !q.Since.Before(q.Until):
		return errors.New("report: since is not before until")
	}
	return nil
}

func (q *Query) key(h *History) rowKey {
	switch q.By {
	case ByEntity:
		return rowKey{entity: h.Entity}
	case ByCheck:
		return rowKey{check: h.Check}
	}
	return rowKey{label: q.Label(h.Entity, h.Check)}
}

// shows reports whether a report of a kind has a row.
func (k Kind) shows(r *Row) bool {
	switch k {
	case Response:
		return r.Incidents+r.Carried > 0
	case Noisiest:
		return r.Changes+r.Incidents > 0
	case Flapping:
		return r.Episodes > 0 || r.Flapping > 0
	}
	return true
}

// compare orders the rows of a report: those with the most to look at first, then by name.
func (k Kind) compare(a, b *Row) int {
	order := 0
	switch k {
	case Availability:
		order = cmp.Compare(orMost(a.UptimePPM), orMost(b.UptimePPM))
	case Response:
		order = cmp.Or(cmp.Compare(b.Incidents, a.Incidents), cmp.Compare(b.Longest, a.Longest))
	case Noisiest:
		order = cmp.Or(cmp.Compare(b.Changes, a.Changes), cmp.Compare(b.Incidents, a.Incidents))
	case Flapping:
		order = cmp.Or(cmp.Compare(b.Flapping, a.Flapping), cmp.Compare(b.Episodes, a.Episodes))
	case Incidents:
		order = cmp.Or(cmp.Compare(b.Incident.Duration, a.Incident.Duration), a.Incident.Begin.Compare(b.Incident.Begin))
	}
	return cmp.Or(order, cmp.Compare(a.Label, b.Label), cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Check, b.Check))
}

func orMost(uptime *int64) int64 {
	if uptime == nil {
		return million + 1
	}
	return *uptime
}

const million = 1_000_000

// finish computes what follows from a row's sums.
func (r *Row) finish(skipSilenced bool) {
	up, known := r.OK, r.OK+r.Warning+r.Critical+r.Unknown+r.Missing
	if skipSilenced {
		up, known = up-r.SilencedOK, known-r.Silenced
	}
	if known > 0 {
		hi, lo := bits.Mul64(uint64(up), million)
		ppm, _ := bits.Div64(hi, lo, uint64(known))
		share := int64(ppm)
		r.UptimePPM = &share
	}
	r.MTTA, r.MTTR = mean(r.acknowledging, r.Acknowledged), mean(r.resolving, r.Resolved)
	letters := make([]byte, BandLength)
	for i, s := range r.band {
		letters[i] = bandLetters[s]
	}
	r.Band = string(letters)
}

func mean(sum, n int64) *int64 {
	if n == 0 {
		return nil
	}
	m := sum / n
	return &m
}

// span is a time in Unix milliseconds.
type span struct{ begin, end int64 }

// clamp returns the time at which a change after the time t counts.
func (s span) clamp(c *Change, t int64) int64 { return min(max(c.Time.UnixMilli(), t), s.end) }

// known returns when the first state begins; end if there is none.
func (s span) known(changes []Change) int64 {
	at := s.begin
	for i := range changes {
		if at = s.clamp(&changes[i], at); !changes[i].Deleted {
			return at
		}
	}
	return s.end
}

// walk adds the changes of one check to a row.
type walk struct {
	span
	row *Row

	now      state
	at       int64 // since when now is in force
	incident int64 // when the present incident began
	carried  bool  // it began before the time
	acked    bool

	each     func(*Row) // gets each incident when it ends, or at the end; nil if it is not wanted
	worst    state      // of the present incident
	silenced int64      // its silenced time
	ack      int64      // when it was acknowledged
}

// ended hands over the present incident, which ended now; next is the state after it.
func (w *walk) ended(next *state, open bool) {
	if w.each == nil {
		return
	}
	i := &Incident{
		Begin: time.UnixMilli(w.incident).UTC(), Carried: w.carried, Duration: w.at - w.incident, Status: w.worst.Status,
		Missing: w.worst.Missing,
	}
	r := &Row{Incident: i, Longest: i.Duration, Silenced: w.silenced}
	if w.carried {
		r.Carried = 1
	} else {
		r.Incidents = 1
	}
	if w.acked {
		r.Acknowledged, r.acknowledging = 1, w.ack-w.incident
	}
	switch end := time.UnixMilli(w.at).UTC(); {
	case open:
		r.Open = 1
	case next.known && !w.carried:
		i.End, r.Resolved, r.resolving = &end, 1, i.Duration
	default:
		i.End, i.Deleted = &end, !next.known
	}
	w.each(r)
}

func (w *walk) pair(changes []Change) {
	w.row.Pairs++
	w.at = w.begin
	for i := range changes {
		c := &changes[i]
		w.spend(w.clamp(c, w.at))
		w.change(state{!c.Deleted, *c}, i == 0 && c.Time.UnixMilli() < w.begin)
	}
	w.spend(w.end)
	if w.now.failing() {
		w.row.Open++
		w.row.Longest = max(w.row.Longest, w.end-w.incident)
		w.ended(nil, true)
	}
}

// spend adds the time until t to what it was spent in.
func (w *walk) spend(t int64) {
	r, d := w.row, t-w.at
	if d == 0 {
		return
	}
	worst := w.now.severity()
	for i := w.part(w.at); i <= w.part(t-1); i++ {
		r.band[i] = max(r.band[i], worst)
	}
	w.at = t
	switch {
	case !w.now.known:
		r.NoData += d
		return
	case w.now.Missing:
		r.Missing += d
	case w.now.Status == 0:
		r.OK += d
		if w.now.Silenced {
			r.SilencedOK += d
		}
	case w.now.Status == 1:
		r.Warning += d
	case w.now.Status == 2:
		r.Critical += d
	default:
		r.Unknown += d
	}
	if w.now.Silenced {
		r.Silenced += d
		w.silenced += d
	}
	if w.now.Flapping {
		r.Flapping += d
	}
}

// part returns the part of the band that a moment is in.
func (w *walk) part(t int64) int64 { return (t - w.begin) * BandLength / (w.end - w.begin) }

// change puts the next state in force; base means that it was in force before the time.
func (w *walk) change(next state, base bool) {
	r, before := w.row, w.now
	w.now = next
	if before.known && next.known && (before.Status != next.Status || before.Missing != next.Missing) {
		r.Changes++
	}
	if next.Flapping && !before.Flapping && !base {
		r.Episodes++
	}
	if next.failing() && before.failing() && next.severity() > w.worst.severity() {
		w.worst = next
	}
	switch was, is := before.failing(), next.failing(); {
	case is && !was:
		w.incident, w.carried, w.acked = w.at, base, false
		w.worst, w.silenced = next, 0
		if base {
			r.Carried++
		} else {
			r.Incidents++
		}
	case is && next.Silenced && !before.Silenced && !w.acked && !w.carried:
		w.acked, w.ack = true, w.at
		r.Acknowledged++
		r.acknowledging += w.at - w.incident
	case was && !is:
		r.Longest = max(r.Longest, w.at-w.incident)
		w.ended(&next, false)
		if next.known && !w.carried { // a deletion resolves nothing
			r.Resolved++
			r.resolving += w.at - w.incident
		}
	}
}
