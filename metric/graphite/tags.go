package graphite

import "strings"

// defaultCompletions is graphite-web's limit of results of autoComplete, maxCompletions ours.
const (
	defaultCompletions = 100
	maxCompletions     = 100_000
)

func (a *API) tags(c *call) error {
	limit, err := c.limit(0)
	if err != nil {
		return err
	}
	tags, err := c.src.Tags(c.ctx, c.get("filter"), limit)
	if err != nil {
		return err
	}
	return c.json(true, func(j *jsonWriter) error {
		j.open('[')
		for _, tag := range tags {
			j.open('{')
			j.textField("tag", tag)
			j.close('}')
		}
		j.close(']')
		return nil
	})
}

func (a *API) tagDetails(c *call) error {
	limit, err := c.limit(0)
	if err != nil {
		return err
	}
	values, err := c.src.TagValues(c.ctx, c.name, c.get("filter"), limit)
	if err != nil {
		return err
	}
	if len(values) == 0 {
		known, err := c.tagKnown()
		if err != nil {
			return err
		}
		if !known { // null, as graphite-web, and no error
			return c.json(true, func(j *jsonWriter) error { j.null(); return nil })
		}
	}
	return c.json(true, func(j *jsonWriter) error {
		j.open('{')
		j.textField("tag", c.name)
		j.key("values")
		j.open('[')
		for _, v := range values {
			j.open('{')
			j.textField("value", v.Value)
			j.intField("count", int64(v.Count))
			j.close('}')
		}
		j.close(']')
		j.close('}')
		return nil
	})
}

// tagKnown reports whether the tag of the path has a value without the filter.
func (c *call) tagKnown() (bool, error) {
	if c.get("filter") == "" {
		return false, nil
	}
	values, err := c.src.TagValues(c.ctx, c.name, "", 1)
	return len(values) > 0, err
}

func (a *API) findSeries(c *call) error {
	exprs := c.list("expr")
	if len(exprs) == 0 {
		return badRequest("no tag expressions specified")
	}
	names, err := c.src.FindTagged(c.ctx, exprs)
	if err != nil {
		return err
	}
	return c.names(true, names)
}

// completionLimit reads the limit of autoComplete.
func (c *call) completionLimit() (int, error) {
	limit, err := c.limit(defaultCompletions)
	if limit == 0 {
		limit = defaultCompletions
	}
	return min(limit, maxCompletions), err
}

func (a *API) completeTags(c *call) error {
	limit, err := c.completionLimit()
	if err != nil {
		return err
	}
	tags, err := c.src.AutoCompleteTags(c.ctx, c.list("expr"), c.get("tagPrefix"), limit)
	if err != nil {
		return err
	}
	return c.names(true, tags)
}

func (a *API) completeValues(c *call) error {
	tag := c.get("tag")
	if tag == "" {
		return badRequest("no tag specified")
	}
	limit, err := c.completionLimit()
	if err != nil {
		return err
	}
	values, err := c.src.AutoCompleteValues(c.ctx, c.list("expr"), tag, c.get("valuePrefix"), limit)
	if err != nil {
		return err
	}
	return c.names(true, values)
}

func (a *API) tagSeries(c *call) error {
	path := c.get("path")
	if path == "" {
		return badRequest("no path specified")
	}
	name, err := c.src.TagSeries(c.ctx, path)
	if err != nil {
		return err
	}
	return c.json(true, func(j *jsonWriter) error { j.text(name); return nil })
}

// paths returns the series that a request changes.
func (c *call) paths() ([]string, error) {
	paths := c.list("path")
	for _, p := range paths {
		if strings.TrimSpace(p) == "" {
			return nil, badRequest("a path is empty")
		}
	}
	return paths, nil
}

func (a *API) tagMultiSeries(c *call) error {
	paths, err := c.paths()
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return badRequest("no paths specified")
	}
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		name, err := c.src.TagSeries(c.ctx, path)
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	return c.names(true, names)
}

func (a *API) delSeries(c *call) error {
	paths, err := c.paths()
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return badRequest("no path specified")
	}
	if err := c.src.DeleteSeries(c.ctx, paths); err != nil {
		return err
	}
	return c.json(true, func(j *jsonWriter) error { j.bool(true); return nil })
}
