package ctl

import (
	"net/url"
	"path"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type asset = resource.Asset

var assetKind = newKind(client.Assets, display[asset]{
	namespace: func(a *asset) string { return a.Metadata.Namespace },
	columns: []cellOf[asset]{
		{column{title: "Name"}, func(a *asset) string { return a.Metadata.Name }},
		{column{title: "URL", text: true}, func(a *asset) string { return shortURL(a.URL) }},
		{column{title: "Hash"}, func(a *asset) string { return a.Sha512[:min(7, len(a.Sha512))] }},
	},
	split:  assetBuilds,
	layout: assetInfo,
	create: []flagField{
		{flag: "url", short: "u", field: "url", required: true, usage: "URL of the archive"},
		{flag: "sha512", field: "sha512", required: true, usage: "checksum of the archive, in hex"},
		{flag: "filter", field: "filters", kind: expressionField,
			usage: "expression over the agent's entity that must be true; can be repeated"},
	},
	createExamples: `  lapwing asset create check-plugins --url https://example.com/plugins.tar.gz --sha512 4f926bf4328fbad2b9cac873d117f771914f4b837c9c85584c38ccf55a3ef3c2e8d154812246e5dda4a87450576b2c58ad9ab40c9e2edc31b288d066b195b21b --filter 'entity.system.os == "linux"'`,
	can:            canList | canInfo | canDelete | canCreate | canUpdate,
	extra:          []func(*kind) *cobra.Command{addAssetCommand, outdatedAssetsCommand},
})

// assetBuilds returns an asset for each build.
func assetBuilds(a *asset) []*asset {
	if len(a.Builds) == 0 {
		return []*asset{a}
	}
	var out []*asset
	for _, b := range a.Builds {
		out = append(out, &asset{Metadata: a.Metadata, URL: b.URL, Sha512: b.Sha512, Filters: b.Filters})
	}
	return out
}

func assetInfo(a *asset) shown {
	block := &infoBlock{title: a.Metadata.Name, lines: []infoLine{{"Name", a.Metadata.Name}, {"Namespace", a.Metadata.Namespace}}}
	if len(a.Builds) > 0 {
		block.lines = append(block.lines, infoLine{"Builds", ""})
	}
	for i, b := range assetBuilds(a) {
		if len(a.Builds) > 0 {
			block.lines = append(block.lines, infoLine{"Build", number(i)})
		}
		block.lines = append(block.lines, infoLine{"URL", b.URL}, infoLine{"SHA-512 Checksum", b.Sha512},
			infoLine{"Filters", commaSpace(b.Filters)})
	}
	return block
}

// shortURL returns a URL without its path except for the file: //host/.../file.
func shortURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return text
	}
	return "//" + u.Hostname() + "/.../" + path.Base(u.Path)
}
