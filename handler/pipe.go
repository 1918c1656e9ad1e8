package handler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// environment is what commands get of this process's environment: what programs need to find their way on this host, and
// what the operator names. Sensu's backend hands over all of its own, with the secrets that are in it.
func environment(pass []string) []string {
	var env []string
	for _, name := range append([]string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SYSTEMROOT"}, pass...) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "LC_") {
			env = append(env, entry)
		}
	}
	return env
}

// runPipe runs the handler's command with the data on its stdin.
func (d *Dispatcher) runPipe(ctx context.Context, h *resource.Handler, dl *Delivery) ([]byte, error) {
	if len(h.Secrets) > 0 {
		return nil, errors.New("the handler wants secrets, and there is no provider of them")
	}
	limit := time.Duration(h.Timeout) * time.Second
	if limit == 0 {
		limit = d.opts.MaxRun
	}
	data := dl.Data
	if data == nil {
		data = []byte{}
	}
	res, err := proc.Run(ctx, proc.Options{
		Command:   h.Command,
		Env:       proc.Environ(d.env, h.EnvVars, []string{"LAPWING_DELIVERY_ID=" + dl.ID}),
		Stdin:     data,
		Timeout:   limit,
		MaxOutput: maxLogged,
	})
	switch {
	case err != nil:
		return nil, err
	case res.TimedOut:
		return res.Output, fmt.Errorf("killed after %s: %w", limit, context.DeadlineExceeded)
	case res.Status != 0:
		return res.Output, &statusError{res.Status}
	}
	return res.Output, nil
}
