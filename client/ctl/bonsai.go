package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// bonsaiURL is the public index of assets for Sensu.
const bonsaiURL = "https://bonsai.sensu.io"

// bonsai begins the annotations of assets from the index.
const bonsai = "io.sensu.bonsai."

func bonsaiFlag(cmd *cobra.Command, index *string) {
	cmd.Flags().StringVar(index, "bonsai-url", bonsaiURL, "URL of the index of assets")
}

func addAssetCommand(k *kind) *cobra.Command {
	var index, rename string
	cmd := &cobra.Command{
		Use:   "add NAMESPACE/NAME[:VERSION]",
		Short: "create an asset from the public index of assets",
		Long: `Create an asset from Bonsai, the public index of assets for Sensu. The default version is the newest one that is not a
pre-release.`,
		Example: `  lapwing asset add sensu/check-disk-usage
  lapwing asset add sensu/check-disk-usage:0.7.0 --rename disk-usage`,
		Args: args("NAMESPACE/NAME[:VERSION]"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			name, version, found, err := s.indexedAsset(ctx, index, args[0])
			if err != nil {
				return err
			}
			if rename != "" {
				name = rename
			}
			body := found.Spec
			body["metadata"] = found.Metadata
			if err := s.create(ctx, k, name, body); err != nil {
				return err
			}
			fmt.Fprintf(s.out, "Version %s; checks and others use it with the runtime asset %q\n", version, name)
			return nil
		}),
	}
	cmd.Flags().StringVarP(&rename, "rename", "r", "", "name of the asset in lapwing (default its name in the index)")
	bonsaiFlag(cmd, &index)
	return cmd
}

func outdatedAssetsCommand(k *kind) *cobra.Command {
	var index string
	cmd := &cobra.Command{
		Use:     "outdated",
		Short:   "list assets with a newer version in the public index",
		Example: "  lapwing asset outdated",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			list, err := client.List(ctx, s.client, client.Assets, s.namespace, client.ListOptions{ChunkSize: defaultChunkSize})
			if err != nil {
				return err
			}
			outdated := []outdatedAsset{}
			for _, a := range list {
				notes := a.Metadata.Annotations
				name := notes[bonsai+"namespace"] + "/" + notes[bonsai+"name"]
				current := notes[bonsai+"version"]
				if name == "/" || current == "" {
					continue
				}
				newest, err := s.newestAsset(ctx, index, name)
				if err != nil {
					return err
				}
				if olderVersion(current, newest) {
					outdated = append(outdated, outdatedAsset{a.Metadata.Name, name, current, newest})
				}
			}
			raw, err := jsonOf(outdated)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) {
				t := &table{columns: []column{{title: "Asset Name"}, {title: "Bonsai Asset"},
					{title: "Current Version"}, {title: "Latest Version"}}}
				for _, a := range outdated {
					t.rows = append(t.rows, []string{a.Name, a.Bonsai, a.Current, a.Latest})
				}
				return t, nil
			})
		}),
	}
	bonsaiFlag(cmd, &index)
	formatFlag(cmd)
	return cmd
}

type outdatedAsset struct {
	Name    string `json:"asset_name"`
	Bonsai  string `json:"bonsai_asset"`
	Current string `json:"current_version"`
	Latest  string `json:"latest_version"`
}

// indexedAsset returns an asset of the index with its name and version. text is NAMESPACE/NAME[:VERSION].
func (s *invocation) indexedAsset(ctx context.Context, index, text string) (name, version string, found *wrapper, err error) {
	name, version, _ = strings.Cut(text, ":")
	if owner, rest, ok := strings.Cut(name, "/"); !ok || owner == "" || rest == "" {
		return "", "", nil, fmt.Errorf("%q is not of the form NAMESPACE/NAME[:VERSION]", text)
	}
	if version == "" {
		if version, err = s.newestAsset(ctx, index, name); err != nil {
			return "", "", nil, err
		}
	}
	data, err := download(ctx, s, index+"/api/v1/assets/"+escapePath(name)+"/"+url.PathEscape(version)+"/release_asset_builds")
	if err != nil {
		return "", "", nil, outOfIndex(fmt.Errorf("get asset %s:%s: %w", name, version, err))
	}
	if found, err = decode[wrapper](data); err != nil {
		return "", "", nil, fmt.Errorf("read asset %s:%s: %w", name, version, err)
	}
	if found.Type != client.Assets.Type || found.Spec == nil {
		return "", "", nil, fmt.Errorf("read asset %s:%s: the index answers with no asset", name, version)
	}
	return name, version, found, nil
}

// outOfIndex adds the ways without the index to the error of an index that does not answer.
func outOfIndex(err error) error {
	if !errors.As(err, new(net.Error)) {
		return err
	}
	return hint(err, "Name an index that this computer reaches with --bonsai-url, or define the asset without one:\n"+
		"lapwing asset create NAME --url URL --sha512 CHECKSUM")
}

// newestAsset returns the newest version of an asset in the index.
func (s *invocation) newestAsset(ctx context.Context, index, name string) (string, error) {
	data, err := download(ctx, s, index+"/api/v1/assets/"+escapePath(name))
	if err != nil {
		return "", outOfIndex(fmt.Errorf("get asset %s: %w", name, err))
	}
	got, err := decode[struct {
		Versions []struct {
			Version string `json:"version"`
		} `json:"versions"`
	}](data)
	if err != nil {
		return "", fmt.Errorf("get asset %s: %w", name, err)
	}
	newest := ""
	for _, v := range got.Versions {
		if !strings.Contains(v.Version, "-") && (newest == "" || olderVersion(newest, v.Version)) {
			newest = v.Version
		}
	}
	if newest == "" {
		return "", hint(errors.New("asset "+name+" has only pre-releases"), "Name a version.")
	}
	return newest, nil
}

// olderVersion reports whether version a comes before b. Versions are numbers with dots between; a pre-release, with a
// dash, comes before its release.
func olderVersion(a, b string) bool {
	a, preA, isPreA := strings.Cut(strings.TrimPrefix(a, "v"), "-")
	b, preB, isPreB := strings.Cut(strings.TrimPrefix(b, "v"), "-")
	partsA, partsB := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(partsA), len(partsB)) {
		var numberA, numberB int
		if i < len(partsA) {
			numberA, _ = strconv.Atoi(partsA[i])
		}
		if i < len(partsB) {
			numberB, _ = strconv.Atoi(partsB[i])
		}
		if numberA != numberB {
			return numberA < numberB
		}
	}
	if isPreA != isPreB {
		return isPreA
	}
	return preA < preB
}

// escapePath encodes a path's segments, but not the slashes between them.
func escapePath(path string) string {
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i] = url.PathEscape(segments[i])
	}
	return strings.Join(segments, "/")
}
