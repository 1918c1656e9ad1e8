package schedule

import (
	"slices"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// parts are the definitions that a check's requests carry beside the check.
type parts struct {
	assets     []resource.Asset
	hooks      []resource.HookConfig
	hookAssets map[string]resource.AssetList
	unknown    []string // assets that the check or its hooks name and that are not defined
}

// part is a hook or an asset.
type part struct {
	kind string
	resource.Name
}

// partsOf collects the hooks and assets that a check names. A missing one is left out: the agents report a missing
// hook, and run the check without a missing asset, which may be installed by other means.
func (s *Scheduler) partsOf(c *resource.CheckConfig) parts {
	p := parts{hooks: []resource.HookConfig{}, hookAssets: map[string]resource.AssetList{}}
	p.assets = s.assets(c.Metadata.Namespace, c.RuntimeAssets, &p.unknown)
	for _, list := range c.CheckHooks {
		for _, name := range list.Hooks {
			if slices.ContainsFunc(p.hooks, func(h resource.HookConfig) bool { return h.Metadata.Name == name }) {
				continue
			}
			hook, ok := s.defs.hook(c.Metadata.Namespace, name)
			if !ok {
				continue
			}
			p.hooks = append(p.hooks, *hook)
			if len(hook.RuntimeAssets) > 0 {
				p.hookAssets[name] = resource.AssetList{Assets: s.assets(c.Metadata.Namespace, hook.RuntimeAssets, &p.unknown)}
			}
		}
	}
	return p
}

func (s *Scheduler) assets(namespace string, names []string, unknown *[]string) []resource.Asset {
	out := []resource.Asset{}
	for _, name := range names {
		switch a, ok := s.defs.asset(namespace, name); {
		case ok:
			out = append(out, *a)
		case !slices.Contains(*unknown, name):
			*unknown = append(*unknown, name)
		}
	}
	return out
}

// noSecretsCommand is what agents run instead of a check with secrets, on Unix and on Windows. There is no secrets
// provider, and Sensu's agents would run the check's own command with empty variables.
const noSecretsCommand = "echo The check was not run: it wants secrets, and this backend has no secrets provider.&& exit 3"

func (p parts) request(c *resource.CheckConfig, issued int64) *resource.CheckRequest {
	if len(c.Secrets) > 0 {
		bare := *c
		bare.Command = noSecretsCommand
		c = &bare
	}
	return &resource.CheckRequest{Config: c, Assets: p.assets, Hooks: p.hooks, HookAssets: p.hookAssets, Issued: issued}
}

// needsAny reports whether a job's requests carry one of the hooks and assets, or would if it existed.
func needsAny(j *job, namespace string, of map[part]struct{}) bool {
	hook := func(name string) bool {
		_, ok := of[part{config.Hooks.String(), resource.Name{Namespace: namespace, Name: name}}]
		return ok
	}
	asset := func(name string) bool {
		_, ok := of[part{config.Assets.String(), resource.Name{Namespace: namespace, Name: name}}]
		return ok
	}
	return slices.ContainsFunc(j.config.RuntimeAssets, asset) ||
		slices.ContainsFunc(j.config.CheckHooks, func(l resource.HookList) bool { return slices.ContainsFunc(l.Hooks, hook) }) ||
		slices.ContainsFunc(j.parts.hooks, func(h resource.HookConfig) bool { return slices.ContainsFunc(h.RuntimeAssets, asset) })
}
