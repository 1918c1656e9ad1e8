package migrate

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// maxNames and maxChanges bound a report: one problem may affect a hundred thousand resources of a fleet.
const (
	maxNames   = 1000
	maxChanges = 10_000
)

// Report is the result of a run.
type Report struct {
	Source   string       `json:"source"`
	Target   string       `json:"target"`
	DryRun   bool         `json:"dry_run"`
	Verified bool         `json:"verified"` // compared again after the copy
	Started  time.Time    `json:"started"`
	Finished time.Time    `json:"finished"`
	Kinds    []KindReport `json:"kinds"`
	// Changes are the resources that were made or changed, or would be. Events are not listed.
	Changes []Change `json:"changes"`
	// Remarks say what was not copied, or not completely, and what to do about it.
	Remarks []Remark `json:"remarks"`
}

// KindReport counts the resources of a kind. Source is the sum of those from Created to Failed.
type KindReport struct {
	Type       string `json:"type"`
	APIVersion string `json:"api_version"`
	Plural     string `json:"plural"`
	Source     int    `json:"source"`    // the source has
	Created    int    `json:"created"`   // in lapwing
	Updated    int    `json:"updated"`   // in lapwing
	Unchanged  int    `json:"unchanged"` // they were equal
	Left       int    `json:"left"`      // not copied; a remark says why
	Failed     int    `json:"failed"`    // refused; a remark says why
	Extra      int    `json:"extra"`     // only lapwing has; they are left alone
	// Equal counts resources that are equal after the copy, of those that were copied or equal before. Only in a
	// verified report.
	Equal int `json:"equal"`
}

// Action is what happened to a resource.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
)

// Change is a resource that was, or would be, made or changed.
type Change struct {
	Type      string      `json:"type"`
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name"`
	Action    Action      `json:"action"`
	Fields    []FieldDiff `json:"fields,omitempty"` // of an update
}

// FieldDiff is a field that differs. A side without the field has no value.
type FieldDiff struct {
	Field  string          `json:"field"`
	Source json.RawMessage `json:"source,omitempty"`
	Target json.RawMessage `json:"target,omitempty"`
}

// Severity says what a remark means for the copy.
type Severity string

// The severities, the worst first.
const (
	Refused Severity = "refused" // lapwing did not accept it, or the source did not return it
	Differs Severity = "differs" // it is not equal after the copy
	// Doubtful is probably a mistake in the source, or a name in a copied definition that names nothing.
	Doubtful Severity = "warning"
	Lost     Severity = "lost" // a part of it cannot be carried
	Left     Severity = "left" // it is not copied
	Noted    Severity = "note" // worth knowing
)

var severities = []Severity{Refused, Differs, Doubtful, Lost, Left, Noted}

// Remark is a fact about some resources of a type.
type Remark struct {
	Severity Severity `json:"severity"`
	Type     string   `json:"type"`
	Reason   string   `json:"reason"`
	Hint     string   `json:"hint,omitempty"` // what to do
	Count    int      `json:"count"`
	Names    []string `json:"names,omitempty"` // the first thousand
}

// Complete reports whether everything to copy is in the target: nothing was refused, and nothing differs.
func (r *Report) Complete() bool {
	return !slices.ContainsFunc(r.Remarks, func(m Remark) bool { return m.Severity == Refused || m.Severity == Differs })
}

type remarkKey struct {
	severity     Severity
	typ, message string
}

// recorder collects a report from several goroutines.
type recorder struct {
	mu      sync.Mutex // guards the fields below, and what kind returned
	report  *Report
	kinds   []*KindReport
	remarks map[remarkKey]*Remark
	settled map[string]bool // type and label of resources that are not sent, about which there is a remark
}

func newRecorder(r *Report) *recorder {
	return &recorder{report: r, remarks: map[remarkKey]*Remark{}, settled: map[string]bool{}}
}

// kind returns the report of a kind, the same for all its steps.
func (rec *recorder) kind(k *kind) *KindReport {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, r := range rec.kinds {
		if r.Plural == k.Plural && r.APIVersion == k.Group {
			return r
		}
	}
	r := &KindReport{Type: k.Type, APIVersion: k.Group, Plural: k.Plural}
	rec.kinds = append(rec.kinds, r)
	return r
}

func (rec *recorder) count(r *KindReport, f func(*KindReport)) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	f(r)
}

func (rec *recorder) copyOf(r *KindReport) KindReport {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return *r
}

func (rec *recorder) change(c Change) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.report.Changes) < maxChanges {
		rec.report.Changes = append(rec.report.Changes, c)
	}
}

// settle notes that a resource is not sent, and that a remark says so.
func (rec *recorder) settle(o *object) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.settled[o.kind.Type+" "+o.label()] = true
}

func (rec *recorder) isSettled(o *object) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.settled[o.kind.Type+" "+o.label()]
}

// remark adds a remark about the named resources. Resources with the same reason share one remark.
func (rec *recorder) remark(s Severity, typ, reason, hint string, names ...string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	key := remarkKey{s, typ, reason}
	m := rec.remarks[key]
	if m == nil {
		m = &Remark{Severity: s, Type: typ, Reason: reason, Hint: hint}
		rec.remarks[key] = m
	}
	m.Count += len(names)
	if len(m.Names) < maxNames {
		m.Names = append(m.Names, names...)
	}
}

// verified adds the result of the comparison after the copy.
func (rec *recorder) verified(after *recorder) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.report.Verified = true
	for _, r := range rec.kinds {
		for _, a := range after.kinds {
			if a.Plural == r.Plural && a.APIVersion == r.APIVersion {
				r.Equal = a.Unchanged
			}
		}
	}
}

// finish writes the collected remarks to the report, in a fixed order.
func (rec *recorder) finish() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	r := rec.report
	r.Kinds, r.Remarks = []KindReport{}, []Remark{}
	if r.Changes == nil {
		r.Changes = []Change{}
	}
	for _, k := range rec.kinds {
		if k.APIVersion == "core/v2" || k.Source+k.Failed > 0 {
			r.Kinds = append(r.Kinds, *k)
		}
	}
	order := map[string]int{}
	for i, k := range rec.kinds {
		order[k.Type] = i
	}
	for _, m := range rec.remarks {
		slices.Sort(m.Names)
		r.Remarks = append(r.Remarks, *m)
	}
	place := func(typ string) int {
		if i, ok := order[typ]; ok {
			return i
		}
		return len(order) // a type that stands in a file
	}
	slices.SortFunc(r.Remarks, func(a, b Remark) int {
		return cmp.Or(
			slices.Index(severities, a.Severity)-slices.Index(severities, b.Severity),
			place(a.Type)-place(b.Type), strings.Compare(a.Type, b.Type), strings.Compare(a.Reason, b.Reason))
	})
	slices.SortStableFunc(r.Changes, func(a, b Change) int {
		return cmp.Or(order[a.Type]-order[b.Type], strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// shownNames and shownUpdates bound the text for each remark and for all updates.
const (
	shownNames   = 10
	shownUpdates = 50
)

var headings = map[Severity]string{
	Refused: "Refused", Differs: "Not equal after the copy", Doubtful: "Probably mistakes", Lost: "Cannot be carried", Left: "Not copied", Noted: "To know",
}

// WriteText writes a report for people.
func WriteText(out io.Writer, r *Report) error {
	w := bufio.NewWriter(out)
	verb := "copied"
	if r.DryRun {
		verb = "would be copied (dry run: nothing was written)"
	}
	fmt.Fprintf(w, "%s -> %s: %s\n\n", r.Source, r.Target, verb)
	writeKinds(w, r)
	writeUpdates(w, r)
	for _, s := range severities {
		heading := "\n" + headings[s] + ":\n"
		for _, m := range r.Remarks {
			if m.Severity != s {
				continue
			}
			fmt.Fprint(w, heading)
			heading = ""
			writeRemark(w, m)
		}
	}
	if r.DryRun {
		fmt.Fprint(w, "\nAfter the copy, look for names that name nothing and checks that no agent runs: lapwing lint --all-namespaces\n")
	}
	return w.Flush()
}

func writeKinds(w io.Writer, r *Report) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header := "kind\tin source\tnew\tchanged\talready equal\tnot copied\trefused\tonly in lapwing"
	if r.Verified {
		header += "\tequal now"
	}
	fmt.Fprintln(tab, header)
	for _, k := range r.Kinds {
		fmt.Fprintf(tab, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d", k.Plural, k.Source, k.Created, k.Updated, k.Unchanged, k.Left, k.Failed, k.Extra)
		if r.Verified {
			fmt.Fprintf(tab, "\t%d of %d", k.Equal, k.Source-k.Left)
		}
		fmt.Fprintln(tab)
	}
	_ = tab.Flush() // w keeps its first error
}

func writeUpdates(w io.Writer, r *Report) {
	n := 0
	for _, c := range r.Changes {
		if c.Action != Update {
			continue
		}
		if n++; n == 1 {
			fmt.Fprint(w, "\nChanged, lapwing's value -> the source's:\n")
		}
		if n > shownUpdates {
			continue
		}
		name := c.Name
		if c.Namespace != "" {
			name = c.Namespace + "/" + name
		}
		fmt.Fprintf(w, "  %s %s\n", c.Type, name)
		for _, f := range c.Fields {
			fmt.Fprintf(w, "    %s: %s -> %s\n", f.Field, shortValue(f.Target), shortValue(f.Source))
		}
	}
	if n > shownUpdates {
		fmt.Fprintf(w, "  and %d more; -o json lists them\n", n-shownUpdates)
	}
}

func shortValue(v json.RawMessage) string {
	const most = 80
	switch text := []rune(string(v)); {
	case len(text) == 0:
		return "(none)"
	case len(text) > most:
		return string(text[:most]) + "…"
	default:
		return string(text)
	}
}

func writeRemark(w io.Writer, m Remark) {
	fmt.Fprintf(w, "  %s: %s", m.Type, m.Reason)
	if m.Count > 0 {
		fmt.Fprintf(w, " (%s)", strconv.Itoa(m.Count))
	}
	fmt.Fprintln(w)
	if len(m.Names) > 0 {
		names := m.Names[:min(len(m.Names), shownNames)]
		between := ", "
		if m.Severity == Doubtful || m.Severity == Refused {
			between = "\n    " // they are lines of files, or of lint
		}
		fmt.Fprintf(w, "    %s", strings.Join(names, between))
		if m.Count > len(names) {
			fmt.Fprintf(w, " and %d more", m.Count-len(names))
		}
		fmt.Fprintln(w)
	}
	if m.Hint != "" {
		fmt.Fprintf(w, "    %s\n", m.Hint)
	}
}
