package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var errMissingHook = errors.New("missing hook config")

// runHooks runs, one after the other, the check's hooks for its status and returns their results. A hook named more
// than once runs once.
func (a *Agent) runHooks(ctx context.Context, req *resource.CheckRequest, config *resource.CheckConfig, ev *resource.Event) []resource.Hook {
	var hooks []resource.Hook
	for _, list := range config.CheckHooks {
		if !hookApplies(list.Type, ev.Check.Status) {
			continue
		}
		for _, name := range list.Hooks {
			if slices.ContainsFunc(hooks, func(h resource.Hook) bool { return h.Metadata.Name == name }) {
				continue
			}
			hook, err := a.runHook(ctx, req, name, ev)
			if ctx.Err() != nil {
				return hooks
			}
			if err != nil {
				hook.Status = statusCritical
				hook.Output = fmt.Sprintf("hook %s: %v\n", name, err)
			}
			hooks = append(hooks, hook)
		}
	}
	return hooks
}

func hookApplies(kind string, status uint32) bool {
	switch kind {
	case "ok":
		return status == 0
	case "warning":
		return status == 1
	case "critical":
		return status == 2
	case "unknown":
		return status > 2
	case "non-zero":
		return status != 0
	}
	return kind == strconv.FormatUint(uint64(status), 10)
}

// runHook runs one hook. The event shows its command as defined, with tokens. The error is about the preparation of the
// hook, or ctx's.
func (a *Agent) runHook(ctx context.Context, req *resource.CheckRequest, name string, ev *resource.Event) (resource.Hook, error) {
	hook := resource.Hook{
		HookConfig: resource.HookConfig{Metadata: resource.ObjectMeta{Name: name, Namespace: ev.Check.Metadata.Namespace}},
		Executed:   time.Now().Unix(),
	}
	at := slices.IndexFunc(req.Hooks, func(h resource.HookConfig) bool { return h.Metadata.Name == name })
	if at < 0 {
		return hook, errMissingHook
	}
	hook.HookConfig = req.Hooks[at]
	if hook.Command == "" {
		return hook, errors.New("it has no command")
	}
	found, err := a.install(ctx, req.HookAssets[name].Assets)
	if err != nil {
		return hook, fmt.Errorf("error getting assets for hook: %w", err)
	}
	config, err := replaceTokens(&hook.HookConfig, a.self.entity())
	if err != nil {
		return hook, fmt.Errorf("error while substituting hook tokens: %w", err)
	}
	var stdin []byte
	if config.Stdin {
		if stdin, err = json.Marshal(ev); err != nil {
			return hook, fmt.Errorf("encode event for stdin: %w", err)
		}
	}
	env := proc.Environ(os.Environ(), found)
	if list := a.settings.Load().allow; len(list) > 0 {
		if _, ok := list.find(config.Command, searchPath(env)); !ok {
			hook.Status, hook.Output = statusUnknown, errHookDenied.Error()
			return hook, nil
		}
	}
	// A hook gets neither the check's variables nor its secrets.
	limits, err := a.limitsOf(req.Config)
	if err != nil {
		return hook, err
	}
	result, err := a.runCommand(ctx, config.Command, env, stdin, config.Timeout, limits)
	if err != nil {
		return hook, err
	}
	config.Command = hook.Command
	hook.HookConfig = *config
	hook.Output = result.output
	hook.Status = int32(result.status)
	hook.Duration = result.duration.Seconds()
	return hook, nil
}
