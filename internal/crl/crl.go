// Package crl keeps lists of revoked certificates, fetched from URLs or files, up to date. The backend passes
// Lists.Revoked to its TLS configurations.
//
// Start fails if a list cannot be fetched. After later failures the last list stays in use, even beyond its end, and
// the failures are logged and counted: a publisher that is down for a day must not keep a fleet out.
package crl

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	fetchTimeout = 30 * time.Second
	maxSize      = 64 << 20
)

// Options say where the lists are.
type Options struct {
	// Sources are URLs (http, https or file) or names of files, in PEM or DER.
	Sources []string
	// Interval is the time between fetches. Default 10 min.
	Interval   time.Duration
	HTTPClient *http.Client
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Lists are the lists.
type Lists struct {
	opts   Options
	log    *slog.Logger
	failed prometheus.Counter
	all    []atomic.Pointer[list] // as Options.Sources

	stop    context.CancelFunc
	running sync.WaitGroup
}

// list is one parsed list.
type list struct {
	*x509.RevocationList
	serials map[string]bool // numbers in hex

	mu     sync.Mutex // guards signed
	signed map[string]bool
}

// New checks the options.
func New(opts Options) (*Lists, error) {
	for _, source := range opts.Sources {
		if u, err := url.Parse(source); err != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "file" {
			return nil, fmt.Errorf("list of revoked certificates %q: neither a file nor an http, https or file URL", source)
		}
	}
	if opts.Interval == 0 {
		opts.Interval = 10 * time.Minute
	}
	if opts.HTTPClient == nil {
		opts.HTTPClient = http.DefaultClient
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Lists{opts: opts, log: opts.Logger.With("component", "crl"), all: make([]atomic.Pointer[list], len(opts.Sources))}
	l.failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_crl_failures_total", Help: "Lists of revoked certificates that could not be fetched or read.",
	})
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(l.failed)
	}
	return l, nil
}

// Start fetches all lists, and again from time to time.
func (l *Lists) Start(ctx context.Context) error {
	for i := range l.all {
		if err := l.fetch(ctx, i); err != nil {
			return err
		}
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.running.Go(func() {
		tick := time.NewTicker(l.opts.Interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.refresh(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// Refresh fetches all lists now. A list that cannot be fetched stays as it is.
func (l *Lists) Refresh(ctx context.Context) error {
	var errs []error
	for i := range l.all {
		errs = append(errs, l.fetch(ctx, i))
	}
	return errors.Join(errs...)
}

func (l *Lists) refresh(ctx context.Context) {
	for i, source := range l.opts.Sources {
		if err := l.fetch(ctx, i); err != nil && ctx.Err() == nil {
			l.failed.Inc()
			l.log.Error("list of revoked certificates is out of date", "source", source, "until", l.all[i].Load().NextUpdate, "err", err)
		}
	}
}

// Stop ends the fetches.
func (l *Lists) Stop() error {
	if l.stop != nil {
		l.stop()
		l.running.Wait()
		l.stop = nil
	}
	return nil
}

func (l *Lists) fetch(ctx context.Context, i int) error {
	text, err := l.read(ctx, l.opts.Sources[i])
	if err != nil {
		return fmt.Errorf("fetch list of revoked certificates: %w", err)
	}
	if block, _ := pem.Decode(text); block != nil {
		text = block.Bytes
	}
	parsed, err := x509.ParseRevocationList(text)
	if err != nil {
		return fmt.Errorf("read list of revoked certificates %s: %w", l.opts.Sources[i], err)
	}
	next := &list{RevocationList: parsed, serials: map[string]bool{}, signed: map[string]bool{}}
	for _, e := range parsed.RevokedCertificateEntries {
		next.serials[e.SerialNumber.Text(16)] = true
	}
	l.all[i].Store(next)
	return nil
}

func (l *Lists) read(ctx context.Context, source string) ([]byte, error) {
	u, err := url.Parse(source)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "":
		return os.ReadFile(source)
	case "file":
		return os.ReadFile(u.Path)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return nil, err
	}
	resp, err := l.opts.HTTPClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", source, resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = errors.New("it is too long")
	}
	return text, err
}

// Revoked reports whether a list of a certificate's issuer contains the certificate.
func (l *Lists) Revoked(cert, issuer *x509.Certificate) bool {
	for i := range l.all {
		one := l.all[i].Load()
		if one != nil && bytes.Equal(one.RawIssuer, issuer.RawSubject) && one.serials[cert.SerialNumber.Text(16)] && one.from(issuer) {
			return true
		}
	}
	return false
}

// from reports whether an issuer has signed the list. It is called only for listed certificates, and once for each
// issuer.
func (l *list) from(issuer *x509.Certificate) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	signed, known := l.signed[string(issuer.Raw)]
	if !known {
		signed = l.CheckSignatureFrom(issuer) == nil
		l.signed[string(issuer.Raw)] = signed
	}
	return signed
}
