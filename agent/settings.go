package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// settings are the options that may change while the agent runs, and values derived from them.
type settings struct {
	*Options
	pipelines []resource.ResourceReference // of keepalives
	allow     allowList
}

func (a *Agent) newSettings(opts *Options) (*settings, error) {
	s := &settings{Options: opts, pipelines: a.parsePipelines(opts.KeepalivePipelines)}
	if opts.AllowList != "" {
		var err error
		if s.allow, err = readAllowList(opts.AllowList); err != nil {
			return nil, err
		}
	}
	a.self.local.Store(localEntity(opts))
	return s, nil
}

// Reload applies the options that may change without a new connection: the allow list, the entity's definition, and the
// keepalive options. It returns the options that differ but need a restart. On an error nothing changes.
func (a *Agent) Reload(opts Options) (needStart []string, err error) {
	opts.Name, opts.Namespace = a.opts.Name, a.opts.Namespace // even if New chose them
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("reload agent: %w", err)
	}
	if opts.Managed != a.opts.Managed {
		return nil, errors.New("reload agent: who defines the entity cannot change while it runs")
	}
	s, err := a.newSettings(&opts)
	if err != nil {
		return nil, fmt.Errorf("reload agent: %w", err)
	}
	a.settings.Store(s)
	for name, differs := range map[string]bool{
		"backend-url": !slices.Equal(opts.BackendURLs, a.opts.BackendURLs), "user": opts.User != a.opts.User, "password": opts.Password != a.opts.Password,
		"max-concurrent-checks": opts.MaxConcurrency != a.opts.MaxConcurrency, "disable-assets": opts.DisableAssets != a.opts.DisableAssets,
		"cache-dir": opts.CacheDir != a.opts.CacheDir, "strip-networks": opts.StripNetworks != a.opts.StripNetworks,
		"discover-processes":     opts.DiscoverProcesses != a.opts.DiscoverProcesses,
		"api, sockets or statsd": opts.Local.APIAddress != a.opts.Local.APIAddress || opts.Local.SocketAddress != a.opts.Local.SocketAddress || opts.Local.StatsDAddress != a.opts.Local.StatsDAddress,
	} {
		if differs {
			needStart = append(needStart, name)
		}
	}
	slices.Sort(needStart)
	// A backend takes an entity from the first keepalive only.
	a.sequences.forget(keepaliveCheck)
	a.keepaliveNow()
	return needStart, nil
}
