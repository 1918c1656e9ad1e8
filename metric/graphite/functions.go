package graphite

import (
	"net/http"
	"strings"

	"github.com/lapwing-monitoring/lapwing/metric/render"
)

// functions describes the functions of targets. Grafana's editor of targets is made of it.
func (a *API) functions(c *call) error {
	grouped := c.get("grouped") == "1" || strings.EqualFold(c.get("grouped"), "true")
	group := c.get("group")
	var list []render.FunctionInfo
	if c.get("type") != "pie" { // there are no pie charts here
		list = render.Functions()
	}
	byGroup := map[string][]render.FunctionInfo{}
	var groups []string
	for _, f := range list {
		if c.has("group") && f.Group != group {
			continue
		}
		name := ""
		if grouped {
			name = f.Group
		}
		if byGroup[name] == nil {
			groups = append(groups, name)
		}
		byGroup[name] = append(byGroup[name], f)
	}
	return c.json(true, func(j *jsonWriter) error {
		j.open('{')
		for _, name := range groups {
			if grouped {
				j.key(name)
				j.open('{')
			}
			for _, f := range byGroup[name] {
				j.key(f.Name)
				writeFunction(j, &f)
			}
			if grouped {
				j.close('}')
			}
		}
		j.close('}')
		return nil
	})
}

func (a *API) function(c *call) error {
	for _, f := range render.Functions() {
		if f.Name == c.name && c.get("type") != "pie" {
			return c.json(true, func(j *jsonWriter) error {
				writeFunction(j, &f)
				return nil
			})
		}
	}
	return &StatusError{http.StatusNotFound, "Function not found: " + c.name}
}

func writeFunction(j *jsonWriter, f *render.FunctionInfo) {
	j.open('{')
	j.textField("name", f.Name)
	j.textField("function", f.Function)
	j.textField("description", f.Description)
	j.textField("module", f.Module)
	j.textField("group", f.Group)
	j.key("params")
	j.open('[')
	for i := range f.Params {
		writeParam(j, &f.Params[i])
	}
	j.close(']')
	j.close('}')
}

// writeParam leaves out the fields that are not set, as graphite-web does.
func writeParam(j *jsonWriter, p *render.ParamInfo) {
	j.open('{')
	j.textField("name", p.Name)
	j.textField("type", p.Type)
	if p.Required {
		j.key("required")
		j.bool(true)
	}
	if p.Default != nil {
		j.key("default")
		j.any(p.Default)
	}
	if p.Multiple {
		j.key("multiple")
		j.bool(true)
	}
	if len(p.Options) > 0 {
		j.key("options")
		j.texts(p.Options)
	}
	if len(p.Suggestions) > 0 {
		j.key("suggestions")
		j.open('[')
		for _, v := range p.Suggestions {
			j.any(v)
		}
		j.close(']')
	}
	j.close('}')
}
