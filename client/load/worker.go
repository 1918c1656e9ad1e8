package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// worker runs the fleets of one process: this one, or another.
type worker interface {
	start(ctx context.Context, part Part) error
	begin(length time.Duration) error
	snapshot() (Snapshot, error)
	quiet() error
	verify(ctx context.Context, api APIOptions) (Verdict, error)
	stop() error
}

// Part is the part of a run that one process has. Its fields are exported for the connection between processes.
type Part struct {
	Fleets []FleetOptions
	// TurnLog is a file for a line per answered turn; "" for none.
	TurnLog string
}

// APIOptions are for reaching the backend's API.
type APIOptions struct {
	URL                string
	Username, Password string
}

func (o APIOptions) client() (*client.Client, error) {
	return client.New(client.Options{URL: o.URL, Username: o.Username, Password: o.Password})
}

// local is the worker in this process.
type local struct {
	log     *slog.Logger
	fleets  []*Fleet
	turnLog *turnLog // nil if there is none
}

func (l *local) start(ctx context.Context, part Part) (err error) {
	if part.TurnLog != "" {
		if l.turnLog, err = openTurnLog(part.TurnLog); err != nil {
			return err
		}
	}
	for _, opts := range part.Fleets {
		f, err := NewFleet(opts, l.log)
		if err != nil {
			return err
		}
		f.turnLog = l.turnLog
		l.fleets = append(l.fleets, f)
		if err := f.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *local) begin(length time.Duration) error {
	for _, f := range l.fleets {
		f.Begin(length)
	}
	return nil
}

func (l *local) snapshot() (Snapshot, error) {
	var s Snapshot
	for _, f := range l.fleets {
		s.add(f.Snapshot())
	}
	s.CPU = ProcessCPU() // of the process, not of each fleet
	return s, nil
}

func (l *local) quiet() error {
	for _, f := range l.fleets {
		f.Quiet()
	}
	return nil
}

func (l *local) verify(ctx context.Context, api APIOptions) (Verdict, error) {
	c, err := api.client()
	if err != nil {
		return Verdict{}, err
	}
	defer c.Close()
	var total Verdict
	for _, f := range l.fleets {
		v, err := f.Verify(ctx, events{c})
		total.add(v)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (l *local) stop() error {
	var errs []error
	for _, f := range l.fleets {
		errs = append(errs, f.Stop())
	}
	if l.turnLog != nil {
		errs = append(errs, l.turnLog.close())
		l.turnLog = nil
	}
	return errors.Join(errs...)
}

// remote is a worker in another process, over its standard input and output. It ends when its input does.
type remote struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	rpc *rpc.Client
}

// startRemote starts a process that calls ServeWorker.
func startRemote(args []string) (*remote, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start load process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start load process: %w", err)
	}
	detach(cmd) // Ctrl-C ends the run, and the run its processes
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start load process: %w", err)
	}
	return &remote{cmd: cmd, in: in, rpc: rpc.NewClient(pipes{out, in})}, nil
}

func (r *remote) start(_ context.Context, part Part) error {
	return r.rpc.Call("Worker.Start", part, new(struct{}))
}

func (r *remote) begin(length time.Duration) error {
	return r.rpc.Call("Worker.Begin", length, new(struct{}))
}

func (r *remote) snapshot() (s Snapshot, err error) {
	err = r.rpc.Call("Worker.Snapshot", struct{}{}, &s)
	return s, err
}

func (r *remote) quiet() error { return r.rpc.Call("Worker.Quiet", struct{}{}, new(struct{})) }

func (r *remote) verify(ctx context.Context, api APIOptions) (v Verdict, err error) {
	call := r.rpc.Go("Worker.Verify", api, &v, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return v, call.Error
	case <-ctx.Done():
		return Verdict{}, ctx.Err()
	}
}

func (r *remote) stop() error {
	err := r.rpc.Call("Worker.Stop", struct{}{}, new(struct{}))
	_ = r.rpc.Close()
	if waitErr := r.cmd.Wait(); err == nil && waitErr != nil {
		err = fmt.Errorf("load process: %w", waitErr)
	}
	return err
}

// pipes is a connection made of two pipes.
type pipes struct {
	io.ReadCloser
	out io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }

func (p pipes) Close() error { return errors.Join(p.out.Close(), p.ReadCloser.Close()) }

// Worker has the calls that a run makes in its other processes. See ServeWorker.
type Worker struct {
	ctx   context.Context
	mu    sync.Mutex // guards local's start and stop
	local local
}

// ServeWorker runs fleets for a run in another process, which calls it over in and out, until in ends.
func ServeWorker(ctx context.Context, in io.ReadCloser, out io.WriteCloser, log *slog.Logger) error {
	w := &Worker{ctx: ctx, local: local{log: log}}
	server := rpc.NewServer()
	if err := server.Register(w); err != nil {
		return fmt.Errorf("serve load process: %w", err)
	}
	server.ServeConn(pipes{in, out})
	return w.Stop(struct{}{}, nil)
}

// Start starts the fleets.
func (w *Worker) Start(part Part, _ *struct{}) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.local.start(w.ctx, part)
}

// Begin begins the measured part.
func (w *Worker) Begin(length time.Duration, _ *struct{}) error { return w.local.begin(length) }

// Snapshot returns the fleets' work.
func (w *Worker) Snapshot(_ struct{}, s *Snapshot) (err error) {
	*s, err = w.local.snapshot()
	return err
}

// Quiet stops the results.
func (w *Worker) Quiet(struct{}, *struct{}) error { return w.local.quiet() }

// Verify compares what was sent with what the backend has.
func (w *Worker) Verify(api APIOptions, v *Verdict) (err error) {
	*v, err = w.local.verify(w.ctx, api)
	return err
}

// Stop disconnects the agents.
func (w *Worker) Stop(struct{}, *struct{}) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.local.stop()
	w.local.fleets = nil
	return err
}
