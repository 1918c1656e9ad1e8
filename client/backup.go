package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	backupPath = "/api/lapwing/v1/backup"
	// backupSilence is how long the server may send nothing of a backup: it copies its database first.
	backupSilence = 2 * time.Minute
)

// Backup asks the server for a backup of itself. The caller reads the answer to its end, checks it with package backup,
// and closes it.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := &timeoutError{c.bases.base(), c.opts.Timeout}
	silent := time.AfterFunc(c.opts.Timeout, func() { cancel(late) })
	resp, err := c.send(ctx, request{
		method: http.MethodPost, path: backupPath, header: http.Header{"Accept-Encoding": {"identity"}},
	})
	if err != nil {
		silent.Stop()
		err = fmt.Errorf("ask for a backup: %w", because(ctx, err))
		cancel(nil)
		return nil, err
	}
	return &backupAnswer{ctx: ctx, cancel: cancel, silent: silent, body: resp.Body}, nil
}

// backupAnswer ends when the server is silent for too long.
type backupAnswer struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	silent *time.Timer
	body   io.ReadCloser
}

func (b *backupAnswer) Read(p []byte) (int, error) {
	b.silent.Stop()
	b.silent = time.AfterFunc(backupSilence, func() {
		b.cancel(fmt.Errorf("the server sent nothing for %v", backupSilence))
	})
	n, err := b.body.Read(p)
	b.silent.Stop()
	if err != nil && err != io.EOF {
		err = because(b.ctx, err)
	}
	return n, err
}

func (b *backupAnswer) Close() error {
	b.silent.Stop()
	b.cancel(nil)
	return b.body.Close()
}
