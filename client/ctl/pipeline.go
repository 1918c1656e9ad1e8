package ctl

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type pipeline = resource.Pipeline

var pipelineKind = newKind(client.Pipelines, display[pipeline]{
	namespace: func(p *pipeline) string { return p.Metadata.Namespace },
	columns: []cellOf[pipeline]{
		{column{title: "Name"}, func(p *pipeline) string { return p.Metadata.Name }},
		{column{title: "Workflows", text: true}, workflowNames},
	},
	title:  func(p *pipeline) string { return p.Metadata.Name },
	layout: pipelineInfo,
	can:    canList | canInfo | canDelete,
})

func workflowNames(p *pipeline) string {
	var names []string
	for _, w := range p.Workflows {
		names = append(names, w.Name)
	}
	return comma(names)
}

// pipelineInfo shows a pipeline with the parts of its workflows below each other.
func pipelineInfo(p *pipeline) shown {
	block := &infoBlock{title: p.Metadata.Name, lines: []infoLine{{"Name", p.Metadata.Name}, {"Workflows", ""}}}
	for _, w := range p.Workflows {
		block.lines = append(block.lines, infoLine{"  " + w.Name, ""})
		for _, ref := range w.Filters {
			block.lines = append(block.lines, infoLine{"    Filter", reference(ref)})
		}
		block.lines = append(block.lines, infoLine{"    Mutator", reference(w.Mutator)}, infoLine{"    Handler", reference(w.Handler)})
	}
	return block
}

// reference returns a reference like core/v2.Handler(Name=slack).
func reference(ref *resource.ResourceReference) string {
	if ref == nil {
		return ""
	}
	return fmt.Sprintf("%s.%s(Name=%s)", ref.APIVersion, ref.Type, ref.Name)
}
