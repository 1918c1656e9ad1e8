package graphite

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/lapwing-monitoring/lapwing/metric/pickle"
)

// found is a node in an answer of find: either a branch or a leaf.
type found struct {
	path, name string
	leaf       bool
	start, end int64
}

// nodes returns the nodes that match pattern, sorted by name, then by path, branches first. A node that is a branch and
// a leaf is listed twice.
func (c *call) nodes(pattern string, leavesOnly bool, now int64) ([]found, error) {
	nodes, err := c.src.Nodes(c.ctx, pattern)
	if err != nil {
		return nil, err
	}
	list := make([]found, 0, len(nodes))
	for _, n := range nodes {
		f := found{path: n.Path, name: n.Path[strings.LastIndexByte(n.Path, '.')+1:], start: n.Start, end: n.End}
		if strings.Contains(n.Path, ";") {
			f.name = n.Path // values of tags may contain dots
		}
		if f.end == 0 {
			f.end = now
		}
		if n.Branch && !leavesOnly {
			list = append(list, f)
		}
		if n.Leaf {
			f.leaf = true
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b found) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.path, b.path))
	})
	return list, nil
}

// findRequest are the parameters of /metrics/find.
type findRequest struct {
	query, format         string
	wildcards, leavesOnly bool
	automaticVariants     bool
	position              int
}

func (c *call) findRequest() (findRequest, error) {
	f := findRequest{query: c.get("query"), format: "treejson"}
	if c.has("format") {
		f.format = c.get("format")
	}
	switch f.format {
	case "treejson", "completer", "json", "nodelist", "pickle", "msgpack":
	default:
		return f, badRequest("parameter format: %q is none of treejson, completer, json, nodelist, pickle, msgpack", f.format)
	}
	if f.query == "" {
		return f, badRequest("parameter query is missing or empty")
	}
	var err error
	for name, to := range map[string]*bool{"wildcards": &f.wildcards, "leavesOnly": &f.leavesOnly,
		"automatic_variants": &f.automaticVariants} {
		if *to, err = c.set(name); err != nil {
			return f, err
		}
	}
	f.position, err = c.int("position", -1)
	return f, err
}

// base returns the part of the query up to its last dot, with its wildcards.
func (f *findRequest) base() string { return f.query[:strings.LastIndexByte(f.query, '.')+1] }

// pattern returns the glob to look for. For completer the query is the beginning of one.
func (f *findRequest) pattern() string {
	if f.format != "completer" {
		return f.query
	}
	p := strings.ReplaceAll(f.query, "..", "*.")
	if !strings.HasSuffix(p, "*") {
		p += "*"
	}
	if !f.automaticVariants {
		return p
	}
	parts := strings.Split(p, ".")
	for i, part := range parts {
		if strings.Contains(part, ",") && !strings.Contains(part, "{") {
			parts[i] = "{" + part + "}"
		}
	}
	return strings.Join(parts, ".")
}

func (a *API) find(c *call) error {
	f, err := c.findRequest()
	if err != nil {
		return err
	}
	// The range is checked only. As graphite-web with a single store, find lists series without values in it too.
	for _, name := range []string{"from", "until"} {
		if c.get(name) == "-1" {
			delete(c.params, name)
		}
	}
	s, err := a.readSpan(c.params, 0)
	if err != nil {
		return err
	}
	list, err := c.nodes(f.pattern(), f.leavesOnly, s.now.Unix())
	if err != nil {
		return err
	}
	c.noCache()
	switch f.format {
	case "completer":
		return c.json(c.ascii(), func(j *jsonWriter) error { writeCompleter(j, list, f.wildcards); return nil })
	case "json":
		return c.json(c.ascii(), func(j *jsonWriter) error { writeNodes(j, list); return nil })
	case "nodelist":
		return c.nodeList(list, f.position)
	case "pickle":
		return c.pickle(pickleNodes(list))
	case "msgpack":
		return c.msgpack(func(e *msgpack.Encoder) error { return packNodes(e, list) })
	}
	return c.json(c.ascii(), func(j *jsonWriter) error { writeTree(j, list, f.base(), f.wildcards); return nil })
}

// writeTree writes branches before leaves, and each name once.
func writeTree(j *jsonWriter, list []found, base string, wildcards bool) {
	j.open('[')
	if wildcards && len(list) > 1 {
		branch := slices.ContainsFunc(list, func(f found) bool { return !f.leaf })
		writeTreeNode(j, "*", base+"*", !branch)
	}
	seen := make(map[string]bool, len(list))
	for _, leaves := range []bool{false, true} {
		for _, f := range list {
			if f.leaf != leaves || seen[f.name] {
				continue
			}
			seen[f.name] = true
			text, err := url.QueryUnescape(f.name)
			if err != nil {
				text = f.name
			}
			writeTreeNode(j, text, base+f.name, f.leaf)
		}
	}
	j.close(']')
}

func writeTreeNode(j *jsonWriter, text, id string, leaf bool) {
	var branch, isLeaf int64 = 1, 0
	if leaf {
		branch, isLeaf = 0, 1
	}
	j.open('{')
	j.textField("text", text)
	j.textField("id", id)
	j.intField("allowChildren", branch)
	j.intField("expandable", branch)
	j.intField("leaf", isLeaf)
	j.close('}')
}

func writeCompleter(j *jsonWriter, list []found, wildcards bool) {
	j.open('{')
	j.key("metrics")
	j.open('[')
	for _, f := range list {
		path, leaf := f.path, "1"
		if !f.leaf {
			path, leaf = f.path+".", "0"
		}
		j.open('{')
		j.textField("path", path)
		j.textField("name", f.name)
		j.textField("is_leaf", leaf)
		j.close('}')
	}
	if wildcards && len(list) > 1 {
		j.open('{')
		j.textField("name", "*")
		j.close('}')
	}
	j.close(']')
	j.close('}')
}

func writeNodes(j *jsonWriter, list []found) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b found) int { return strings.Compare(a.path, b.path) })
	j.open('[')
	for _, f := range list {
		j.open('{')
		j.textField("path", f.path)
		j.key("is_leaf")
		j.bool(f.leaf)
		if f.leaf {
			j.key("intervals")
			j.open('[')
			j.open('{')
			j.intField("start", f.start)
			j.intField("end", f.end)
			j.close('}')
			j.close(']')
		}
		j.close('}')
	}
	j.close(']')
}

// nodeList answers with the distinct nodes at a position of the paths; a negative one counts from the end.
func (c *call) nodeList(list []found, position int) error {
	var names []string
	for _, f := range list {
		parts := strings.Split(f.path, ".")
		at := position
		if at < 0 {
			at += len(parts)
		}
		if at < 0 || at >= len(parts) {
			return badRequest("parameter position: %s has no node %d", f.path, position)
		}
		names = append(names, parts[at])
	}
	slices.Sort(names)
	return c.json(c.ascii(), func(j *jsonWriter) error {
		j.open('{')
		j.key("nodes")
		j.texts(slices.Compact(names))
		j.close('}')
		return nil
	})
}

// pickleNodes gives intervals as tuples. graphite-web itself sends objects of its classes, but its reader takes both.
func pickleNodes(list []found) []any {
	values := make([]any, 0, len(list))
	for _, f := range list {
		d := pickle.Dict{{Key: "path", Value: f.path}, {Key: "is_leaf", Value: f.leaf}}
		if f.leaf {
			d = append(d, pickle.Item{Key: "intervals", Value: []any{pickle.Tuple{f.start, float64(f.end)}}})
		}
		values = append(values, d)
	}
	return values
}

func packNodes(e *msgpack.Encoder, list []found) error {
	err := e.EncodeArrayLen(len(list))
	for _, f := range list {
		if err != nil {
			break
		}
		node := []any{"path", f.path, "is_leaf", f.leaf}
		if f.leaf {
			node = append(node, "intervals", [][]any{{f.start, float64(f.end)}})
		}
		if err = e.EncodeMapLen(len(node) / 2); err == nil {
			err = e.EncodeMulti(node...)
		}
	}
	return err
}

func (c *call) pickle(value any) error {
	b, err := pickle.Append(nil, value)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/pickle")
	_, err = c.w.Write(b)
	return err
}

func (c *call) msgpack(write func(*msgpack.Encoder) error) error {
	c.w.Header().Set("Content-Type", "application/x-msgpack")
	e := msgpack.NewEncoder(c.w)
	e.UseCompactInts(true)
	return write(e)
}

// maxQueries bounds the patterns of an expand request.
const maxQueries = 1000

func (a *API) expand(c *call) error {
	grouped, err := c.set("groupByExpr")
	if err != nil {
		return err
	}
	leavesOnly, err := c.set("leavesOnly")
	if err != nil {
		return err
	}
	queries := c.list("query")
	if len(queries) > maxQueries {
		return badRequest("the request has %d patterns: %d are allowed", len(queries), maxQueries)
	}
	results := make(map[string][]string, len(queries))
	var all, order []string
	for _, q := range queries {
		if _, done := results[q]; done {
			continue
		}
		list, err := c.nodes(q, leavesOnly, 0)
		if err != nil {
			return err
		}
		paths := make([]string, 0, len(list))
		for _, f := range list {
			paths = append(paths, f.path)
		}
		slices.Sort(paths)
		paths = slices.Compact(paths)
		results[q] = paths
		order = append(order, q)
		if !grouped {
			all = append(all, paths...)
		}
	}
	slices.Sort(all)
	c.noCache()
	return c.json(c.ascii(), func(j *jsonWriter) error {
		j.open('{')
		j.key("results")
		if grouped {
			j.open('{')
			for _, q := range order {
				j.key(q)
				j.texts(results[q])
			}
			j.close('}')
		} else {
			j.texts(slices.Compact(all))
		}
		j.close('}')
		return nil
	})
}

// index answers with the names of all series that have no tags.
func (a *API) index(c *call) error {
	return c.json(c.ascii(), func(j *jsonWriter) error {
		j.open('[')
		err := c.src.All(c.ctx, func(name string) bool {
			if !strings.Contains(name, ";") {
				j.text(name)
			}
			return j.err == nil && c.ctx.Err() == nil
		})
		if err == nil {
			err = c.ctx.Err()
		}
		j.close(']')
		return err
	})
}

func (a *API) metadata(c *call) error {
	src, ok := c.src.(MetadataSource)
	if !ok {
		return errNotFound
	}
	key, metrics := c.get("key"), c.list("metric")
	if len(metrics) > maxQueries {
		return badRequest("the request has %d metrics: %d are allowed", len(metrics), maxQueries)
	}
	return c.json(c.ascii(), func(j *jsonWriter) error {
		j.open('{')
		for _, m := range metrics {
			value, err := src.Metadata(c.ctx, m, key)
			if c.ctx.Err() != nil {
				return c.ctx.Err()
			}
			j.key(m)
			j.open('{')
			if err != nil {
				j.textField("error", err.Error())
			} else {
				j.key("value")
				j.any(value)
			}
			j.close('}')
		}
		j.close('}')
		return nil
	})
}

// any writes a text, a number, a boolean or null.
func (j *jsonWriter) any(v any) {
	switch v := v.(type) {
	case string:
		j.text(v)
	case bool:
		j.bool(v)
	case int:
		j.int(int64(v))
	case int64:
		j.int(v)
	case float64:
		j.float(v)
	default:
		j.null()
	}
}
