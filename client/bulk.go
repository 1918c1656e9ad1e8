package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Bulk acts on all objects that a selector selects, and returns the report. It calls progress, unless nil, with reports of
// what was done so far. Namespace "" means all of them.
func (c *Client) Bulk(ctx context.Context, namespace string, in *BulkRequest, progress func(*BulkReport)) (*BulkReport, error) {
	if namespace == "" {
		namespace = "-"
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(max(c.opts.Timeout, c.silence), func() { cancel(&timeoutError{c.bases.base(), c.opts.Timeout}) })
	defer silent.Stop()
	what := in.Action + " " + in.Resource
	resp, err := c.send(ctx, request{
		method: http.MethodPost, path: ours + escape(namespace) + "/bulk", in: in,
		header: http.Header{"Accept": {"application/x-ndjson"}, "Accept-Encoding": {"identity"}}, // a proxy would hold lines back
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, because(ctx, err))
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(resp.Body)
	for {
		report := new(BulkReport)
		if err := lines.Decode(report); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("%s: %w", what, because(ctx, err))
		}
		if report.Finished {
			return report, nil
		}
		silent.Reset(c.silence)
		if progress != nil {
			progress(report)
		}
	}
}
