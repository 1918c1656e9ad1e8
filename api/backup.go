package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/backup"
)

const (
	backupType = "application/octet-stream"
	// backupTimeout is how long a client may take for a quarter of a megabyte of its backup.
	backupTimeout = time.Minute
	// backupEndTimeout is how long it may take for the last bytes when the backup has to end.
	backupEndTimeout = 2 * time.Second
)

// serveBackup adds the path that answers with a backup of this backend. It is open, because no resource in roles stands
// for it: the handler wants all rights.
func (a *API) serveBackup() {
	a.route(ours+"backup", access{open: true, long: true}, methods{http.MethodPost: a.makeBackup})
}

// makeBackup answers with a backup: a file of package backup. The backup has password hashes, keys and all secrets, so
// only users with a rule for all verbs and all resources get it. If it fails on the way, the answer ends with the
// reason and without a trailer.
func (a *API) makeBackup(w *response, r *request) error {
	if !a.opts.Auth.Authorize(r.user, auth.Attributes{Verb: "*", Resource: "*"}) {
		return forbidden("a backup has all secrets: only users with all rights, as of the role cluster-admin, can make one")
	}
	if a.opts.Backup == nil {
		return errNotFound
	}
	if !a.openStream() {
		return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: "the backend is stopping"}
	}
	defer a.streams.Done()
	ctx, cancel := a.untilStop(r.Context())
	defer cancel()
	out := &backupWriter{w: w, control: http.NewResponseController(w), ctx: ctx, begin: func() {
		a.audited(r.Context(), r.act, "create", "cluster", "", "backup")
	}}
	defer context.AfterFunc(ctx, out.ended)()
	err := a.opts.Backup(ctx, out)
	switch {
	case errors.Is(err, backup.ErrBusy):
		return &apiError{status: http.StatusConflict, code: codeExists, message: err.Error()}
	case errors.Is(err, backup.ErrNoRoom):
		err = &apiError{status: http.StatusInsufficientStorage, code: codeInternal, message: err.Error()}
	}
	if err != nil && w.status != 0 {
		_ = out.control.Flush() // the answer has the reason, and its connection is cut now
	}
	return err
}

// backupWriter sends a backup. Each write has a time limit of its own, which is short once ctx has ended.
type backupWriter struct {
	w       *response
	control *http.ResponseController
	ctx     context.Context
	begin   func() // called before the first write

	mu sync.Mutex // held while the deadline of a write is set
}

func (b *backupWriter) Write(p []byte) (int, error) {
	first := b.w.status == 0
	if first {
		b.begin()
		b.w.Header().Set("Content-Type", backupType)
		b.w.Header().Set("Cache-Control", "no-store")
		b.w.Header().Set("X-Accel-Buffering", "no")
	}
	if err := b.limit(); err != nil {
		return 0, err
	}
	n, err := b.w.Write(p)
	if err == nil && first { // the client learns that the backup has begun
		err = b.control.Flush()
	}
	return n, err
}

func (b *backupWriter) limit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	timeout := backupTimeout
	if b.ctx.Err() != nil {
		timeout = backupEndTimeout
	}
	return b.control.SetWriteDeadline(time.Now().Add(timeout))
}

// ended gives the write under way less time.
func (b *backupWriter) ended() { _ = b.limit() }
