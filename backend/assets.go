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
	if b.opts.Mirror.MaxBytes == 0 {
		return nil, nil
	}
	o := b.opts.Mirror
	o.Dir, o.Logger, o.Registerer = filepath.Join(b.cacheDir(stateDir), "mirror"), b.log, b.opts.Registry
	o.Rate, o.Burst = b.opts.Assets.Rate, b.opts.Assets.Burst
	o.Sources = func(namespace, sum string) (found []*resource.AssetBuild) {
		for a := range config.List(definitions.Snapshot(), config.Assets, namespace) {
			found = append(found, asset.Builds(a, sum)...)
		}
		return found
	}
	return asset.NewMirror(o)
}

func (b *Backend) newAssets(stateDir string, definitions *config.Store, expressions *filter.Pool) (*assets, error) {
	// Most backends never need an asset with filters, and it takes a process to tell the C library.
	self := sync.OnceValue(func() *resource.Entity {
		ctx := context.Background()
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
	o := b.opts.Assets
	o.Dir, o.Applies = filepath.Join(b.cacheDir(stateDir), "assets"), asset.About(self, compile)
	o.Logger, o.Registerer = b.log, b.opts.Registry
	store, err := asset.New(o)
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
