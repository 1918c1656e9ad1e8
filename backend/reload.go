package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
)

// fetchTimeout bounds how long a reload waits for lists of revoked certificates.
const fetchTimeout = 30 * time.Second

// Reload takes over the options that may change while the backend runs: the TLS files and lists of revoked certificates,
// which are read again even if their names are the same, the limits of the API, and Log.MinFree. All others are left as they
// are. The event log file is opened again. On an error all is as it was before, except for lists of revoked
// certificates, which are replaced one by one.
func (b *Backend) Reload(ctx context.Context, opts Options) error {
	if err := b.turn.take(ctx); err != nil {
		return err
	}
	defer b.turn.give()
	p := b.running
	if p == nil {
		return errors.New("reload backend: it is not running")
	}
	// The next start must not refuse what this accepts, also of options that only a new start takes over.
	if err := opts.Check(); err != nil {
		return err
	}
	if _, err := opts.signer(); err != nil {
		return err
	}
	if made := p.log.Partitions(); opts.Log.Partitions != 0 && opts.Log.Partitions != made {
		return otherPartitions(made, opts.Log.Partitions)
	}
	// Now they are checked together with those that stay until a new start.
	was := &b.opts.TLS
	opts.TLS.ClientCertAuth, opts.TLS.AgentCertAuth, opts.TLS.AgentNameAuth = was.ClientCertAuth, was.AgentCertAuth, was.AgentNameAuth
	opts.TLS.AgentCRLs = was.AgentCRLs
	if err := opts.Check(); err != nil {
		return err
	}
	opts.complete()
	if err := b.reloadTLS(ctx, &opts.TLS); err != nil {
		return fmt.Errorf("reload backend: %w", err)
	}
	if p.eventFile != nil {
		p.eventFile.Reopen()
	}
	if p.platform != nil {
		p.platform.Reopen()
	}
	p.api.SetLimits(api.Limits{
		Request: opts.API.RequestLimit, DefaultSilence: opts.API.DefaultSilence, MaxSilence: opts.API.MaxSilence,
	})
	p.log.SetMinFree(opts.Log.MinFree)
	b.reserve.Store(opts.Log.MinFree)
	return nil
}

func (b *Backend) reloadTLS(ctx context.Context, t *TLS) error {
	if (b.tls.apiFiles == nil) != (t.CertFile == "") || (b.tls.agentFiles == nil) != (t.CertFile == "" && t.AgentCertFile == "") {
		return errors.New("--cert-file, --agent-auth-cert-file: TLS cannot be switched on or off while the backend runs")
	}
	old := b.opts.TLS
	if (old.AgentTrustedCAFile == "") != (t.AgentTrustedCAFile == "") {
		return errors.New("--agent-auth-trusted-ca-file: agents' certificates cannot be switched on or off while the backend runs")
	}
	if b.tls.revoked != nil {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		if err := b.tls.revoked.Refresh(ctx); err != nil {
			return err
		}
	}
	if err := useFiles(b.tls.apiFiles, b.tls.agentFiles, t); err != nil {
		_ = useFiles(b.tls.apiFiles, b.tls.agentFiles, &old) // what is in use stays so if they are gone
		return err
	}
	names := &b.opts.TLS
	names.CertFile, names.KeyFile, names.TrustedCAFile = t.CertFile, t.KeyFile, t.TrustedCAFile
	names.AgentCertFile, names.AgentKeyFile, names.AgentTrustedCAFile = t.AgentCertFile, t.AgentKeyFile, t.AgentTrustedCAFile
	return nil
}

// useFiles has both listeners read the named files.
func useFiles(apiFiles, agentFiles *tlsfiles.Files, t *TLS) error {
	if apiFiles != nil {
		o := apiOptions(t)
		if err := apiFiles.Use(o.Cert, o.Key, o.CA); err != nil {
			return err
		}
	}
	if agentFiles != nil {
		o := agentOptions(t)
		return agentFiles.Use(o.Cert, o.Key, o.CA)
	}
	return nil
}
