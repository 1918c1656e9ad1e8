package journal

import (
	"sync"
	"sync/atomic"
	"time"
)

// Usage is how full a journal is, and whether it can be written.
type Usage struct {
	Bytes    int64 `json:"bytes"`     // of all files
	MaxBytes int64 `json:"max_bytes"` // bound of the files
	// Owed are the bytes of the files that PostgreSQL needs, as far as Trim knows.
	Owed int64 `json:"owed_bytes"`
	// Growth is by how many bytes a second Owed has grown over the last minutes. It is negative while PostgreSQL catches
	// up, and 0 in the first minute.
	Growth float64 `json:"growth_bytes_per_second"`
	// Free is the free space of the disk, and MinFree the one below which the oldest files are removed; both are 0 if the
	// free space is not known.
	Free    uint64 `json:"disk_free_bytes"`
	MinFree uint64 `json:"min_free_bytes"`
	// Error has why the last write failed, and Since when the first one did; both are empty after a success.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Dropping says that changes are lost until a write succeeds: more would wait for the disk than may.
	Dropping bool `json:"dropping,omitempty"`
}

// failure is why the journal is not written.
type failure struct {
	dropping atomic.Bool // changes were dropped since the last success

	mu    sync.Mutex // guards the fields below
	err   error      // of the last write
	since time.Time  // of the first one that failed
}

// note notes how a write went.
func (f *failure) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.since = time.Time{}
		f.dropping.Store(false)
	case f.err == nil:
		f.since = time.Now()
	}
	f.err = err
}

// show adds the failure to a usage.
func (f *failure) show(u *Usage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		u.Error, u.Since = f.err.Error(), f.since
	}
	u.Dropping = f.dropping.Load()
}

// Left is how many more bytes PostgreSQL may owe before changes are lost. Files that it does not need make room.
func (u Usage) Left() int64 {
	left := u.MaxBytes - u.Owed
	if u.MinFree > 0 {
		left = min(left, int64(u.Free)-int64(u.MinFree)+u.Bytes-u.Owed)
	}
	return max(left, 0)
}

// FullIn is in how much time changes are lost if the journal grows on as it does; false if it does not grow.
func (u Usage) FullIn() (time.Duration, bool) {
	if u.Growth <= 0 {
		return 0, false
	}
	const most = 365 * 24 * time.Hour
	return time.Duration(min(float64(u.Left())/u.Growth, most.Seconds()) * float64(time.Second)), true
}

// Usage returns how full the journal is, and whether it can be written.
func (j *Journal) Usage() Usage {
	u := Usage{MaxBytes: j.opts.MaxBytes}
	u.Bytes, u.Owed = j.files.usage()
	u.Growth = j.growth.perSecond(time.Now(), u.Owed)
	if free, err := j.opts.FreeSpace(); err == nil {
		u.Free, u.MinFree = free, j.opts.MinFree
	}
	j.failure.show(&u)
	u.Dropping = u.Dropping || j.pending.Load() > j.opts.MaxPending
	return u
}

const (
	sampleEvery = 10 * time.Second
	// growthOver is the time over which the growth is measured, and growthAfter the least.
	growthOver  = 5 * time.Minute
	growthAfter = time.Minute
)

// growth remembers what was owed over the last minutes.
type growth struct {
	mu      sync.Mutex // guards samples
	samples []sample   // oldest first
}

type sample struct {
	at   time.Time
	owed int64
}

func (g *growth) note(at time.Time, owed int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.samples)
	if n > 0 && at.Sub(g.samples[n-1].at) < sampleEvery {
		return
	}
	old := 0
	for old < n && at.Sub(g.samples[old].at) > growthOver {
		old++
	}
	g.samples = append(append(g.samples[:0], g.samples[old:]...), sample{at, owed})
}

func (g *growth) perSecond(now time.Time, owed int64) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.samples) == 0 || now.Sub(g.samples[0].at) < growthAfter {
		return 0
	}
	return float64(owed-g.samples[0].owed) / now.Sub(g.samples[0].at).Seconds()
}
