package ctl

import (
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type fallback = resource.FallbackPipeline

var fallbackKind = newKind(client.FallbackPipelines, display[fallback]{
	namespace: func(f *fallback) string { return f.Metadata.Namespace },
	columns: []cellOf[fallback]{
		{column{title: "Name"}, func(f *fallback) string { return f.Metadata.Name }},
		{column{title: "Pipelines"}, func(f *fallback) string { return comma(fallbackNames(f)) }},
	},
	title: func(f *fallback) string { return f.Metadata.Name },
	fields: []fieldOf[fallback]{
		{label: "Name", text: func(f *fallback) string { return f.Metadata.Name }},
		{label: "Pipelines", text: func(f *fallback) string { return commaSpace(fallbackNames(f)) }},
		{label: "Namespace", text: func(f *fallback) string { return f.Metadata.Namespace }},
	},
	can: canList | canInfo | canDelete,
})

func fallbackNames(f *fallback) []string {
	var names []string
	for _, ref := range f.Pipelines {
		if ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names
}
