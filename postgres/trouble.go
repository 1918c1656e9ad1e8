package postgres

import (
	"fmt"
	"strings"
	"time"
)

// Bounds of Trouble.
const (
	// failsLong is how long PostgreSQL may fail before operators are told: a fail-over takes a minute or two.
	failsLong = 5 * time.Minute
	// unwrittenLong is how long the journal may fail before operators are told: what waits for its disk is in memory.
	unwrittenLong = time.Minute
	// fullSoon is the time until changes are lost below which it is critical that PostgreSQL fails.
	fullSoon = time.Hour
	// nearlyFull, as good as full, and empty enough again: shares of the journal's bound.
	nearlyFull, asGoodAsFull, emptyAgain = 0.8, 0.95, 0.7
	// nearMinFree is how near the disk's free space may come to the least one, as a share of that.
	nearMinFree = 1.25
)

// Trouble says what an operator should do about one backend's copy of events: the status of a check, 0 if all is well,
// and why and what. open says that it was in trouble before: then it is well again only at a distance from the bounds.
func (s *Status) Trouble(now time.Time, open bool) (status uint32, text string) {
	if !s.Configured {
		return 0, ""
	}
	u := &s.Journal
	share, bound, least := 0.0, nearlyFull, nearMinFree
	if u.MaxBytes > 0 {
		share = float64(u.Owed) / float64(u.MaxBytes)
	}
	if open {
		bound, least = emptyAgain, 2*nearMinFree-1
	}
	in, grows := u.FullIn()
	failing := s.Error != "" && now.Sub(s.Since) >= failsLong
	unwritten := u.Error != "" && now.Sub(u.Since) >= unwrittenLong
	full := share > bound
	disk := u.Owed > 0 && float64(u.Free) < least*float64(u.MinFree)
	switch {
	case !failing && !unwritten && !full && !disk:
		return 0, ""
	case unwritten && u.Dropping, share > asGoodAsFull, u.Owed > 0 && u.Free < u.MinFree, failing && grows && in < fullSoon:
		status = 2
	default:
		status = 1
	}
	var b strings.Builder
	if unwritten {
		fmt.Fprintf(&b, "The journal for PostgreSQL could not be written for %s: %s. ", span(now.Sub(u.Since)),
			strings.TrimSuffix(u.Error, "."))
		if u.Dropping {
			b.WriteString("Too many changes wait for its disk: further ones are lost now. ")
		} else {
			b.WriteString("Changes wait in memory, and are lost if they become too many. ")
		}
	}
	switch {
	case s.Error != "":
		fmt.Fprintf(&b, "PostgreSQL has failed for %s: %s. It", span(now.Sub(s.Since)), strings.TrimSuffix(s.Error, "."))
	case !s.Connected:
		b.WriteString("PostgreSQL has not answered yet. It")
	case full || disk:
		b.WriteString("PostgreSQL takes changes more slowly than they come, or did until lately. It")
	default:
		b.WriteString("PostgreSQL")
	}
	fmt.Fprintf(&b, " is %s behind. The journal keeps %s for it, %.0f %% of its bound of %s", span(ofSeconds(s.Lag)),
		size(float64(u.Owed)), 100*share, size(float64(u.MaxBytes)))
	switch {
	case u.Left() == 0:
		b.WriteString(", and is full: the oldest changes are lost now.")
	case grows:
		fmt.Fprintf(&b, ", and grows by %s a second: it is full in %s, and then the oldest changes are lost.", size(u.Growth), span(in))
	case u.Growth < 0:
		fmt.Fprintf(&b, ", and shrinks by %s a second.", size(-u.Growth))
	default:
		b.WriteString(".")
	}
	if disk {
		fmt.Fprintf(&b, " Its disk has %s free; below %s the oldest changes are lost.", size(float64(u.Free)), size(float64(u.MinFree)))
	}
	b.WriteString(" Alerts are not affected. To do: ")
	b.WriteString(s.remedy(unwritten, full, disk))
	return status, b.String()
}

// remedy says what to do.
func (s *Status) remedy(unwritten, full, disk bool) string {
	var all []string
	server := s.Server
	if server == "" {
		server = "the server"
	}
	if unwritten {
		all = append(all, "check that postgres-journal in the state directory is a directory that lapwing may write, on a disk "+
			"with room and without faults")
	}
	switch {
	case s.Error != "":
		all = append(all, "check that "+server+" runs, takes connections of this backend, and has room on its disk")
	case full || disk:
		all = append(all, "see what slows down "+server)
	}
	if disk {
		all = append(all, "make room on the disk of the state directory")
	}
	if full {
		all = append(all, "if that takes long, raise --postgres-journal-bytes")
	}
	return strings.Join(append(all, "lapwing postgres status shows the present state"), "; ") + "."
}

func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// span writes a time roughly.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// size writes a size roughly.
func size(n float64) string {
	units := [...]string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for n >= 1000 && i < len(units)-1 {
		n /= 1000
		i++
	}
	if n < 10 && i > 0 {
		return fmt.Sprintf("%.1f %s", n, units[i])
	}
	return fmt.Sprintf("%.0f %s", n, units[i])
}
