// Package send makes one attempt to deliver an event to a handler's destination: a command, a socket, a web service, a
// mail server, a store of metrics.
//
// Package handler calls Run and decides what follows. An attempt never retries by itself. It reports whether a retry
// may succeed (Result.Temporary), by the rules of its protocol, and when. Even if the other side floods,
// hangs, lies or is not there, an attempt ends within the handler's timeout, keeps a bounded part of the answer and
// leaves no goroutine behind.
package send

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// defaultTimeout is the timeout of all handlers but commands.
	defaultTimeout = 60 * time.Second
	// maxOutput is how much of the output of a command or the answer of a server is kept.
	maxOutput = 4 << 10
	// readOutput is how much of it is read. The difference makes up for secrets that are longer than their
	// placeholders.
	readOutput = 2 * maxOutput
	// maxRetryAfter bounds the wait that a server may ask for.
	maxRetryAfter = time.Hour
)

// Options wires a Sender. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// PassEnv names further variables of this process's environment that commands get. Default none.
	PassEnv []string
	// MaxRun bounds a command without a timeout of its own.
	MaxRun time.Duration
	// MaxProcesses is how many commands run at a time, over all handlers.
	MaxProcesses int
	// Assets returns what the named assets of a namespace add to the environment of a command. Nil means that no
	// handler can have any.
	Assets func(ctx context.Context, namespace string, names []string) (env []string, err error)
	// SecretDirs are the directories below which handlers may name files with secrets. Empty is none.
	SecretDirs []string
	// Types are the types of handlers that may be used. Empty is all.
	Types []string
	// MayRun reports whether this backend may make attempts now. It is asked before each write to a receiver; while it
	// returns false, attempts end with ErrMayNotRun. Default: always.
	MayRun func() bool
	// Kinds replaces the kinds of handlers of some types, for tests. Default none.
	Kinds      map[string]Kind
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Kind makes one attempt for handlers of one type, within the time of ctx.
type Kind func(ctx context.Context, h *resource.Handler, job Job) Result

// Sender makes attempts. It is safe for concurrent use.
type Sender struct {
	opts      Options
	log       *slog.Logger
	metrics   metrics
	env       []string // of commands
	processes chan struct{}
	files     secretFiles
	dial      dialer
	clients   clients
	streams   streams
}

// Job is one event to deliver.
type Job struct {
	// ID is the same at each attempt: receivers recognise repeats by it.
	ID string
	// Data is the result of the handler's mutator, or of the default one. Nil means the event's JSON.
	Data []byte
	// Mutated is set if a mutator that the user chose made Data. Kinds that write messages of their own then read the
	// event from Data, if it is one.
	Mutated bool
	// Event is the event. It is not changed.
	Event *resource.Event
	// Attempt counts from 1.
	Attempt int
	// Contact is whom an escalation notifies; the zero value if the job is of none.
	Contact Contact
}

// Contact is whom an escalation notifies with a job, as templates know it.
type Contact struct {
	Name, FullName, Email, User string
	// Escalation is the escalation's handler, and Step the number of the step from 1; 0 for a resolution.
	Escalation string
	Step       int
	// AcknowledgeURL is the link that acknowledges the event, or "".
	AcknowledgeURL string
}

// The kinds of results, as the metrics name them.
const (
	KindOK      = "ok"
	KindFailed  = "failed"  // it ran, and reported failure
	KindTimeout = "timeout" // it did not end in time
	KindError   = "error"   // it could not run
)

// Result is the result of an attempt.
type Result struct {
	// Status is a command's exit status, a web server's status or a mail server's code; 0 if there is none.
	Status int
	// Output is the beginning of a command's output or a server's answer.
	Output []byte
	// Err is nil after success. It has no secrets in it.
	Err error
	// Temporary reports whether the same attempt may succeed later.
	Temporary bool
	// RetryAfter is the least wait that the other side asks for; 0 if it asks for none.
	RetryAfter time.Duration
	// Kind is KindOK, KindFailed, KindTimeout or KindError.
	Kind string
	// Recipients are the names by which people know the receivers, without secrets.
	Recipients []string
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{MaxRun: 10 * time.Minute, MaxProcesses: 64, SecretDirs: []string{"/etc/lapwing/secrets"}}
}

// New checks the options. It starts and connects nothing; Run does.
func New(opts Options) (*Sender, error) {
	if opts.MaxProcesses < 0 || opts.MaxRun < 0 {
		return nil, errors.New("send: MaxProcesses and MaxRun must not be negative")
	}
	for _, typ := range opts.Types {
		if !slices.Contains(resource.HandlerTypes, typ) {
			return nil, fmt.Errorf("send: %q is no type of handlers (--allowed-handler-types); they are %s", typ,
				strings.Join(resource.HandlerTypes, ", "))
		}
	}
	for _, dir := range opts.SecretDirs {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("send: directory of secrets %q (--handler-secret-dirs) must be an absolute path", dir)
		}
	}
	defaults := DefaultOptions()
	opts.MaxProcesses = cmp.Or(opts.MaxProcesses, defaults.MaxProcesses)
	opts.MaxRun = cmp.Or(opts.MaxRun, defaults.MaxRun)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sender{
		opts:      opts,
		log:       opts.Logger.With("component", "send"),
		env:       environment(opts.PassEnv),
		processes: make(chan struct{}, opts.MaxProcesses),
		files:     opts.SecretDirs,
		dial:      dialer{opts.MayRun},
	}
	s.clients.dial = s.dial
	s.metrics = newMetrics(opts.Registerer, s)
	return s, nil
}

// Start does nothing: connections are made on demand. It gives Sender the same life cycle as other parts.
func (s *Sender) Start(context.Context) error { return nil }

// Stop closes the idle connections, and waits for their readers. Attempts must have ended.
func (s *Sender) Stop() error {
	s.streams.close()
	s.clients.close()
	return nil
}

// Run makes one attempt. The end of ctx ends it, as a temporary failure.
func (s *Sender) Run(ctx context.Context, h *resource.Handler, job Job) Result {
	begin := time.Now()
	res := s.run(ctx, h, job)
	if res.Err == nil {
		res.Kind, res.Temporary = KindOK, false
	} else {
		if res.Kind == "" {
			res.Kind = kindOf(res)
		}
		if ctx.Err() != nil {
			res.Temporary = true
		}
		if h.Retry != nil && res.Status != 0 && slices.Contains(h.Retry.Statuses, res.Status) {
			res.Temporary = true
		}
	}
	if len(res.Recipients) == 0 {
		res.Recipients = receivers(h)
	}
	s.conceal(h, &res)
	res.RetryAfter = min(res.RetryAfter, maxRetryAfter)
	res.Output = res.Output[:min(len(res.Output), maxOutput)]
	s.metrics.note(h.Type, res.Kind, time.Since(begin))
	return res
}

// conceal replaces the handler's secrets in the answer: servers repeat the URL or the headers of a request, and
// commands print their variables. Answers are stored and logged.
func (s *Sender) conceal(h *resource.Handler, res *Result) {
	if res.Err == nil && len(res.Output) == 0 && len(res.Recipients) == 0 {
		return
	}
	secrets := h.SecretTexts()
	for _, file := range h.SecretTextFiles() {
		if content, err := s.files.secret("", file.Name); err == nil {
			secrets = append(secrets, file.Texts(content)...)
		}
	}
	switch {
	case len(res.Output) >= readOutput:
		res.Output = []byte(resource.ConcealCut(string(res.Output), secrets))
	case len(res.Output) > 0:
		res.Output = []byte(resource.Conceal(string(res.Output), secrets))
	}
	res.Err = resource.ConcealError(res.Err, secrets)
	for i := range res.Recipients {
		res.Recipients[i] = resource.Conceal(res.Recipients[i], secrets)
	}
}

// TypeAllowed returns why handlers of a type cannot be used, or nil.
func (s *Sender) TypeAllowed(typ string) error {
	if len(s.opts.Types) > 0 && !slices.Contains(s.opts.Types, typ) {
		return fmt.Errorf("handlers of type %s are not allowed on this backend (--allowed-handler-types)", typ)
	}
	return nil
}

// Allowed returns why the operator's settings forbid a handler, or nil.
func (s *Sender) Allowed(h *resource.Handler) error {
	if err := s.TypeAllowed(h.Type); err != nil {
		return err
	}
	for _, name := range h.SecretFiles() {
		if _, _, err := s.files.find(name); err != nil {
			return err
		}
	}
	return nil
}

// MutatorAllowed returns why the operator's settings forbid a mutator, or nil: the rules for a mutator's command are
// those of pipe handlers.
func (s *Sender) MutatorAllowed(m *resource.Mutator) error {
	if m.Type == "javascript" {
		return nil
	}
	return s.TypeAllowed("pipe")
}

// run chooses the kind. Commands bound their own time, which excludes the wait for a free process.
func (s *Sender) run(ctx context.Context, h *resource.Handler, job Job) Result {
	if err := s.TypeAllowed(h.Type); err != nil {
		return permanent(err)
	}
	if kind, ok := s.opts.Kinds[h.Type]; ok {
		return kind(ctx, h, job)
	}
	if h.Type == "pipe" {
		return s.runPipe(ctx, h, job)
	}
	kind, ok := kinds[h.Type]
	if !ok {
		return permanent(fmt.Errorf("handlers of type %q cannot be run", h.Type))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout(h))
	defer cancel()
	return kind(s, ctx, h, job)
}

// kinds has all kinds but commands.
var kinds = map[string]func(*Sender, context.Context, *resource.Handler, Job) Result{
	"tcp":          (*Sender).runTCP,
	"udp":          (*Sender).runUDP,
	"tcp_stream":   (*Sender).runStream,
	"webhook":      (*Sender).runWebhook,
	"slack":        (*Sender).runSlack,
	"pagerduty":    (*Sender).runPagerDuty,
	"email":        (*Sender).runEmail,
	"alertmanager": (*Sender).runAlertmanager,
	"graphite":     (*Sender).runGraphite,
	"influx":       (*Sender).runInflux,
}

// timeout returns a handler's own timeout, or the default of all but commands.
func timeout(h *resource.Handler) time.Duration {
	if h.Timeout == 0 {
		return defaultTimeout
	}
	return time.Duration(h.Timeout) * time.Second
}

// permanent returns a failure that only a change of the definition, or of the event, can end.
func permanent(err error) Result { return Result{Err: err} }

// temporary returns a failure that may be over at the next attempt.
func temporary(err error) Result { return Result{Err: err, Temporary: true} }

// statusError is a failure that the other side reports.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.status) }

func kindOf(res Result) string {
	var status *statusError
	var network net.Error
	switch {
	case errors.As(res.Err, &status):
		return KindFailed
	case errors.Is(res.Err, context.DeadlineExceeded), errors.Is(res.Err, os.ErrDeadlineExceeded),
		errors.As(res.Err, &network) && network.Timeout():
		return KindTimeout
	}
	return KindError
}
