package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Replay takes stored events through a pipeline once more. It calls f with each line of the answer but an error, which it
// returns. The last line has a summary.
func (c *Client) Replay(ctx context.Context, namespace string, in *ReplayRequest, f func(*ReplayLine) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(c.opts.Timeout, func() { cancel(&timeoutError{c.bases.base(), c.opts.Timeout}) })
	defer func() { silent.Stop() }()
	resp, err := c.send(ctx, request{
		method: http.MethodPost, path: ours + escape(namespace) + "/pipeline/replay", in: in,
		header: http.Header{"Accept-Encoding": {"identity"}}, // a compressing proxy would hold lines back
	})
	if err != nil {
		return fmt.Errorf("replay: %w", because(ctx, err))
	}
	defer resp.Body.Close()
	silent.Stop()
	silent = time.AfterFunc(c.silence, func() { cancel(fmt.Errorf("the backend was silent for %v", c.silence)) })
	lines := json.NewDecoder(resp.Body)
	for {
		var line ReplayLine
		if err := lines.Decode(&line); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("replay: %w", because(ctx, err))
		}
		silent.Reset(c.silence)
		if line.Error != "" {
			return errors.New("replay: " + line.Error)
		}
		if err := f(&line); err != nil {
			return err
		}
		if line.Summary != nil {
			return nil
		}
	}
}
