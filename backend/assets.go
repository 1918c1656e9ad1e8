package backend

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/lapwing-monitoring/lapwing/asset"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/hostfacts"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// assets brings what handlers, filters and mutators need to this host.
type assets struct {
	store       *asset.Store
	definitions *config.Store
}

// cacheDir is for what can be had again.
func (b *Backend) cacheDir(stateDir string) string {
	if b.opts.CacheDir != "" {
		return b.opts.CacheDir
	}
	return filepath.Join(stateDir, cacheName)
}

// newMirror hands agents the archives that assets of their namespaces name; nil if that is not wanted.
func (b *Backend) newMirror(stateDir string, definitions *config.Store) (*asset.Mirror, error) {
	if b.opts.AssetsMirrorBytes < 0 {
		return nil, nil
	}
	return asset.NewMirror(asset.MirrorOptions{
		Dir: filepath.Join(b.cacheDir(stateDir), "mirror"),
		Sources: func(namespace, sum string) (found []*resource.AssetBuild) {
			for a := range config.List(definitions.Snapshot(), config.Assets, namespace) {
				found = append(found, asset.Builds(a, sum)...)
			}
			return found
		},
		MaxBytes: b.opts.AssetsMirrorBytes, MaxAge: b.opts.AssetsMirrorAge, Rate: b.opts.AssetsRateLimit, Burst: b.opts.AssetsBurstLimit,
		Logger: b.log, Registerer: b.opts.Registry,
	})
}

func (b *Backend) newAssets(ctx context.Context, stateDir string, definitions *config.Store, expressions *filter.Pool) (*assets, error) {
	ctx = context.WithoutCancel(ctx)
	// Most backends never need an asset with filters, and it takes a process to tell the C library.
	self := sync.OnceValue(func() *resource.Entity {
		facts, err := hostfacts.System(ctx, hostfacts.LibC(ctx), false)
		if err != nil {
			b.log.Error("facts of this host, for assets, are not known", "err", err)
			return nil
		}
		return &resource.Entity{EntityClass: "backend", Metadata: resource.ObjectMeta{Name: facts.Hostname}, System: *facts}
	})
	compile := func(namespace, expression string) (*filter.EntityExpression, error) {
		return filter.CompileEntity(expressions, filter.Definer{Kind: "asset", Namespace: namespace, Name: "filters"}, expression)
	}
	store, err := asset.New(asset.Options{
		Dir: filepath.Join(b.cacheDir(stateDir), "assets"), Applies: asset.About(self, compile),
		Rate: b.opts.AssetsRateLimit, Burst: b.opts.AssetsBurstLimit, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return nil, err
	}
	return &assets{store, definitions}, nil
}

// get installs assets by their names.
func (a *assets) get(ctx context.Context, namespace string, names []string) ([]asset.Installed, error) {
	sn := a.definitions.Snapshot()
	list := make([]*resource.Asset, len(names))
	for i, name := range names {
		var ok bool
		if list[i], ok = config.Get(sn, config.Assets, namespace, name); !ok {
			return nil, fmt.Errorf("there is no asset %q", name)
		}
	}
	return a.store.Get(ctx, list)
}

// env is for commands of handlers.
func (a *assets) env(ctx context.Context, namespace string, names []string) ([]string, error) {
	installed, err := a.get(ctx, namespace, names)
	return asset.Environ(installed), err
}

// set is for filters and mutators.
func (a *assets) set(ctx context.Context, namespace string, names []string) (*workflow.AssetSet, error) {
	installed, err := a.get(ctx, namespace, names)
	if err != nil {
		return nil, err
	}
	scripts, err := asset.Scripts(installed)
	if err != nil {
		return nil, err
	}
	return &workflow.AssetSet{Scripts: scripts, Env: asset.Environ(installed)}, nil
}
