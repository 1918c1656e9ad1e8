package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/asset"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var errNoAssets = errors.New("runtime assets are disabled on this agent")

// newAssets opens the cache of assets, or returns nil if assets are disabled.
func (a *Agent) newAssets() (*asset.Store, error) {
	if a.opts.DisableAssets {
		return nil, nil
	}
	compile := func(_, expression string) (*filter.EntityExpression, error) {
		return filter.CompileEntityHere(expression)
	}
	return asset.New(asset.Options{
		Dir:     filepath.Join(a.opts.CacheDir, "assets"),
		Applies: asset.About(a.self.entity, compile), Client: a.opts.AssetClient, Mirror: a.mirror,
		Rate: a.opts.AssetsRateLimit, Burst: a.opts.AssetsBurstLimit, Logger: a.log, Registerer: a.opts.Registerer,
	})
}

// mirror returns a request to the connected backend for an archive, with the agent's credentials. Only lapwing backends
// have a mirror.
func (a *Agent) mirror(ctx context.Context, sum string) (*http.Client, *http.Request, error) {
	c := a.connection.Load()
	if c == nil || !c.Lapwing {
		return nil, nil, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, nil, err
	}
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("assets", sum).String(), nil)
	if err != nil {
		return nil, nil, err
	}
	var config *tls.Config
	if a.opts.TLS != nil {
		config = a.opts.TLS()
	}
	req.Header = a.transport.handshakeHeader(config)
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, TLSHandshakeTimeout: a.transport.opts.HandshakeTimeout, DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: a.transport.opts.HandshakeTimeout}).DialContext,
		},
		// A redirect must not carry the password to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, req, nil
}

// install installs the assets of a request on this host and returns the environment for its commands. The request
// leaves out assets that the backend does not know; the command may exist without them.
func (a *Agent) install(ctx context.Context, assets []resource.Asset) (env []string, err error) {
	if len(assets) == 0 {
		return nil, nil
	}
	if a.assets == nil {
		return nil, errNoAssets
	}
	substituted := make([]*resource.Asset, len(assets))
	entity := a.self.entity()
	for i := range assets {
		if substituted[i], err = replaceTokens(&assets[i], entity); err != nil {
			return nil, fmt.Errorf("asset %s: error while substituting tokens: %w", assets[i].Metadata.Name, err)
		}
	}
	installed, err := a.assets.Get(ctx, substituted)
	if err != nil {
		return nil, err
	}
	return asset.Environ(installed), nil
}

// purgeAssets removes assets that were not used for long.
func (a *Agent) purgeAssets(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		n, err := a.assets.Purge(a.opts.AssetMaxAge)
		if err != nil {
			a.log.Error("cannot remove unused assets", "err", err)
		}
		if n > 0 {
			a.log.Info("unused assets removed", "count", n)
		}
	}
}
