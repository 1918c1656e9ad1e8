package ctl

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	assets "github.com/lapwing-monitoring/lapwing/asset"
	filters "github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/hostfacts"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// commandPlugin is a program of another author that runs as a command of the client. Each has a file of its own in the
// directory "commands" beside the client's settings, so that two processes do not overwrite each other's.
type commandPlugin struct {
	Alias string         `json:"alias"`
	Asset resource.Asset `json:"asset"`
}

// An alias is the name of a file.
var anAlias = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

func commandCommand() *cobra.Command {
	cmd := groupOf("command", "install and run command plugins", "list",
		installPluginCommand(), listPluginsCommand(), execPluginCommand(), deletePluginCommand())
	cmd.Long = `Install and run command plugins: programs that are packed as assets and use the API. Those made for sensuctl work.`
	return cmd
}

// local returns a cobra function for f, which needs the client's files and no API.
func local(f func(ctx context.Context, s *invocation, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		set, err := resolve(cmd)
		if err != nil {
			return err
		}
		return explain(f(cmd.Context(), newInvocation(cmd, set), args), set)
	}
}

func installPluginCommand() *cobra.Command {
	var index, archive, sum string
	cmd := &cobra.Command{
		Use:   "install ALIAS [NAMESPACE/NAME[:VERSION]]",
		Short: "install a command plugin from the public index of assets or a URL",
		Long: `Install a command plugin from Bonsai, the public index of assets for Sensu, or from a URL. The default version is the
newest one that is not a pre-release. The archive is fetched when the command first runs.`,
		Example: "  lapwing command install ec2 sensu/sensu-ec2-discovery:0.1.0\n" +
			"  lapwing command install ec2 --url https://example.com/ec2.tar.gz --checksum 3b6…",
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.RunE = local(func(ctx context.Context, s *invocation, args []string) error {
		alias := args[0]
		if !anAlias.MatchString(alias) {
			return fmt.Errorf("alias %q: it may have letters, digits, and after the first of them also . _ and -", alias)
		}
		if (len(args) == 2) == (archive != "") {
			return hintUsage(cmd, errors.New("name either an asset of the index or --url"))
		}
		if (archive == "") != (sum == "") {
			return hintUsage(cmd, errors.New("--url and --checksum go together"))
		}
		if _, err := os.Stat(s.pluginFile(alias)); err == nil {
			err := fmt.Errorf("command %s is installed already", alias)
			return hint(err, "Delete it first: lapwing command delete %s", alias)
		}
		var a *resource.Asset
		var version string
		var err error
		if archive == "" {
			a, version, err = s.indexedPlugin(ctx, index, args[1])
		} else {
			a = &resource.Asset{Metadata: resource.ObjectMeta{Name: alias}, URL: archive, Sha512: sum}
			err = checkPluginArchive(archive, sum)
		}
		if err != nil {
			return err
		}
		if err := writeJSON(s.pluginFile(alias), commandPlugin{alias, *a}); err != nil {
			return err
		}
		if version != "" {
			version = ", version " + version
		}
		fmt.Fprintf(s.out, "Installed command %s%s; run it: lapwing command exec %s\n", alias, version, alias)
		return nil
	})
	cmd.Flags().StringVar(&archive, "url", "", "URL of the plugin's archive, a .tar.gz or .tar as assets have")
	cmd.Flags().StringVar(&sum, "checksum", "", "SHA-512 of the archive at --url")
	bonsaiFlag(cmd, &index)
	return cmd
}

func checkPluginArchive(archive, sum string) error {
	if u, err := url.Parse(archive); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--url: %q is not a URL with http:// or https://", archive)
	}
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 64 {
		err := errors.New("--checksum: it must be the 128 hexadecimal digits of a SHA-512")
		return hint(err, "Get them with 'sha512sum FILE'.")
	}
	return nil
}

// indexedPlugin returns an asset of the public index that is a command plugin, and its version.
func (s *invocation) indexedPlugin(ctx context.Context, index, text string) (*resource.Asset, string, error) {
	name, version, found, err := s.indexedAsset(ctx, index, text)
	if err != nil {
		return nil, "", err
	}
	raw, err := jsonOf(found.Spec)
	if err != nil {
		return nil, "", err
	}
	a, err := decode[resource.Asset](raw)
	if err != nil {
		return nil, "", fmt.Errorf("read asset %s:%s: %w", name, version, err)
	}
	if raw, err = jsonOf(found.Metadata); err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(raw, &a.Metadata); err != nil {
		return nil, "", fmt.Errorf("read asset %s:%s: %w", name, version, err)
	}
	notes := a.Metadata.Annotations
	if notes[bonsai+"type"] != "sensuctl" || notes[bonsai+"provider"] != "sensuctl/command" {
		return nil, "", hint(fmt.Errorf("asset %s is no command plugin", name),
			"Checks and handlers use it after: lapwing asset add %s", text)
	}
	return a, version, nil
}

func listPluginsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list installed command plugins",
		Example: "  lapwing command list",
		Args:    args(),
		RunE: local(func(_ context.Context, s *invocation, _ []string) error {
			plugins := []*commandPlugin{}
			for _, alias := range s.pluginNames() {
				p, err := s.plugin(alias)
				if err != nil {
					return err
				}
				plugins = append(plugins, p)
			}
			raw, err := jsonOf(plugins)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) {
				t := &table{columns: []column{{title: "Alias"}, {title: "Asset"}, {title: "Version"}, {title: "URL"}}}
				for _, p := range plugins {
					from := p.Asset.URL
					if len(p.Asset.Builds) > 0 {
						from = p.Asset.Builds[0].URL
					}
					meta := p.Asset.Metadata
					t.rows = append(t.rows, []string{p.Alias, meta.Name, meta.Annotations[bonsai+"version"], from})
				}
				return t, nil
			})
		}),
	}
	formatFlag(cmd)
	return cmd
}

func deletePluginCommand() *cobra.Command {
	var skipConfirm bool
	cmd := &cobra.Command{
		Use:     "delete ALIAS",
		Short:   "delete a command plugin",
		Long:    "Delete a command plugin. Its unpacked archive stays in the cache directory, which may be deleted at any time.",
		Example: "  lapwing command delete ec2",
		Args:    args("ALIAS"),
		RunE: local(func(_ context.Context, s *invocation, args []string) error {
			if _, err := s.plugin(args[0]); err != nil {
				return err
			}
			if !skipConfirm {
				if err := s.confirm(fmt.Sprintf("Are you sure you want to delete command %s?", args[0])); err != nil {
					return err
				}
			}
			if err := os.Remove(s.pluginFile(args[0])); err != nil {
				return fmt.Errorf("delete command %s: %w", args[0], err)
			}
			fmt.Fprintln(s.out, "Deleted command", args[0])
			return nil
		}),
	}
	skipConfirmFlag(cmd, &skipConfirm)
	completePlugins(cmd)
	return cmd
}

func execPluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec ALIAS [ARGUMENT…]",
		Short: "run a command plugin",
		Long: `Run a command plugin. All that follows ALIAS is for the plugin, but for one -- directly after it; flags of lapwing stand
before it. The plugin gets the settings and renewed tokens in its environment, as 'lapwing env' prints them. The exit code
is the plugin's.`,
		Example: "  lapwing command exec ec2 --region eu-west-1\n  lapwing command exec --namespace prod ec2",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cache, err := pluginCache(cmd)
		if err != nil {
			return err
		}
		return run(func(ctx context.Context, s *invocation, args []string) error {
			p, err := s.plugin(args[0])
			if err != nil {
				return err
			}
			rest := args[1:]
			if len(rest) > 0 && rest[0] == "--" {
				rest = rest[1:]
			}
			return s.runPlugin(ctx, p, cache, rest)
		})(cmd, args)
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().String("cache-dir", "", `directory of unpacked plugins (default "$HOME/.cache/lapwing")`)
	completePlugins(cmd)
	return cmd
}

func pluginCache(cmd *cobra.Command) (string, error) {
	if dir, _ := lookup(cmd, "cache-dir"); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", hint(fmt.Errorf("find the cache of plugins: %w", err), "Set HOME, or use --cache-dir.")
	}
	return filepath.Join(home, ".cache", "lapwing"), nil
}

// pluginExit is the exit status of a plugin, which has said itself what was wrong.
type pluginExit struct{ status int }

func (e *pluginExit) Error() string { return fmt.Sprintf("the plugin ended with %d", e.status) }

// pluginGrace is how long a plugin may take to end after it was told to.
const pluginGrace = 10 * time.Second

func (s *invocation) runPlugin(ctx context.Context, p *commandPlugin, cache string, args []string) error {
	installed, err := unpackPlugin(ctx, p, cache)
	if err != nil {
		return err
	}
	entry, err := exec.LookPath(filepath.Join(installed.Dir, "bin", "entrypoint"))
	if err != nil {
		return fmt.Errorf("command %s: its archive has no program bin/entrypoint", p.Alias)
	}
	variables, err := s.variables(ctx)
	if err != nil {
		return err
	}
	own := make([]string, len(variables))
	for i, v := range variables {
		own[i] = v[0] + "=" + v[1]
	}
	own = append(own, "SENSU_API_URL="+s.client.URLs()[0]) // plugins know only one
	cmd := exec.CommandContext(ctx, entry, args...)
	cmd.Env = proc.Environ(os.Environ(), own, assets.Environ([]assets.Installed{*installed}))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, rawStream(s.out), rawStream(s.errOut)
	cmd.WaitDelay = pluginGrace
	cmd.Cancel = func() error {
		if isTerminal(s.in) { // the terminal has told the plugin, too
			return nil
		}
		return cmd.Process.Signal(os.Interrupt)
	}
	err = cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() > 0 {
		return &pluginExit{cmd.ProcessState.ExitCode()}
	}
	if err != nil {
		return fmt.Errorf("run command %s: %w", p.Alias, err)
	}
	return nil
}

// unpackPlugin fetches and unpacks the archive for this host, unless the cache has it.
func unpackPlugin(ctx context.Context, p *commandPlugin, cache string) (*assets.Installed, error) {
	self := sync.OnceValue(func() *resource.Entity {
		facts, err := hostfacts.System(ctx, hostfacts.LibC(ctx), false)
		if err != nil {
			return nil // assets.About says that the facts are not known
		}
		return &resource.Entity{EntityClass: "sensuctl", Metadata: resource.ObjectMeta{Name: "sensuctl"}, System: *facts}
	})
	compile := func(_, expression string) (*filters.EntityExpression, error) {
		return filters.CompileEntityHere(expression)
	}
	opts := assets.DefaultOptions()
	opts.Dir, opts.Applies = filepath.Join(cache, "assets"), assets.About(self, compile)
	store, err := assets.New(opts)
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", p.Alias, err)
	}
	installed, err := store.Get(ctx, []*resource.Asset{&p.Asset})
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", p.Alias, err)
	}
	if len(installed) == 0 {
		return nil, fmt.Errorf("command %s: its asset has no build for this host's system", p.Alias)
	}
	return &installed[0], nil
}

func (s *invocation) pluginFile(alias string) string {
	return filepath.Join(s.files.dir, "commands", alias+".json")
}

// plugin reads an installed plugin.
func (s *invocation) plugin(alias string) (*commandPlugin, error) {
	if _, err := os.Stat(s.pluginFile(alias)); !anAlias.MatchString(alias) || errors.Is(err, fs.ErrNotExist) {
		text := "See the installed ones with 'lapwing command list'."
		if near := optionerr.Nearest(alias, s.pluginNames()); near != "" {
			text = fmt.Sprintf("Did you mean %q?", near)
		}
		return nil, hint(fmt.Errorf("command %s is not installed", alias), "%s", text)
	}
	p := new(commandPlugin)
	if err := readJSON(s.pluginFile(alias), p); err != nil {
		return nil, err
	}
	p.Alias = alias
	return p, nil
}

// pluginNames returns the aliases of the installed plugins, sorted.
func (s *invocation) pluginNames() (names []string) {
	found, _ := filepath.Glob(s.pluginFile("*")) // the pattern is valid
	for _, path := range found {
		if name := strings.TrimSuffix(filepath.Base(path), ".json"); anAlias.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// completePlugins lets the shell complete aliases.
func completePlugins(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		var names []string
		set, err := resolve(cmd)
		if len(args) > 0 || err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		for _, name := range newInvocation(cmd, set).pluginNames() {
			if strings.HasPrefix(name, typed) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
