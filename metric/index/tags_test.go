package index

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func tagIndexOf(t *testing.T) *Index {
	return newIndex(t,
		"cpu;dc=dc1;host=web01", "cpu;dc=dc1;host=web02", "cpu;dc=dc2;host=db01", "disk.used;dc=dc1;host=web01;mount=/",
		"disk.used;dc=dc2;env=prod;host=db01", "mem;env=test", "untagged.cpu",
		"bad;tag", "bad;k=", "bad;=v", "x;k=~v", ";k=v",
		"~~q;k=w", "mem;env=test;name=other")
}

func TestFindTagged(t *testing.T) {
	x := tagIndexOf(t)
	for exprs, want := range map[string]string{
		"name=cpu":                 "cpu;dc=dc1;host=web01 cpu;dc=dc1;host=web02 cpu;dc=dc2;host=db01",
		"name=cpu host=~web":       "cpu;dc=dc1;host=web01 cpu;dc=dc1;host=web02",
		"name=~.* host=~eb":        "",
		"host=~w.b0[12] name!=cpu": "disk.used;dc=dc1;host=web01;mount=/",
		"host=~web01|db": "cpu;dc=dc1;host=web01 cpu;dc=dc2;host=db01 disk.used;dc=dc1;host=web01;mount=/ " +
			"disk.used;dc=dc2;env=prod;host=db01",
		"dc=dc2 env=":                 "cpu;dc=dc2;host=db01",
		"dc!= env!=":                  "disk.used;dc=dc2;env=prod;host=db01",
		"dc=dc2 env!=prod":            "cpu;dc=dc2;host=db01",
		"name=disk.used mount=~":      "disk.used;dc=dc1;host=web01;mount=/ disk.used;dc=dc2;env=prod;host=db01",
		"name=disk.used mount!=~.":    "disk.used;dc=dc2;env=prod;host=db01",
		"name=mem":                    "mem;env=test mem;env=test;name=other",
		"name=other":                  "",
		"name=q":                      "~~q;k=w",
		"k=~.":                        "~~q;k=w",
		"host=web01 dc=dc1 name=cpu":  "cpu;dc=dc1;host=web01",
		"host=~(?!web).":              "cpu;dc=dc2;host=db01 disk.used;dc=dc2;env=prod;host=db01",
		"host=~(?=w).*1":              "cpu;dc=dc1;host=web01 disk.used;dc=dc1;host=web01;mount=/",
		"dc=dc1 host!=~web01":         "cpu;dc=dc1;host=web02",
		"host!=~web|^$":               "cpu;dc=dc2;host=db01 disk.used;dc=dc2;env=prod;host=db01",
		"name=untagged.cpu":           "",
		"nosuch=v":                    "",
		"name=cpu dc=dc1 host=~(?i)W": "cpu;dc=dc1;host=web01 cpu;dc=dc1;host=web02",
	} {
		got, err := x.FindTagged(t.Context(), strings.Fields(exprs), Budget{})
		if err != nil {
			t.Errorf("FindTagged(%s): %v", exprs, err)
			continue
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("FindTagged(%s) = %q, want %q", exprs, s, want)
		}
	}
}

func TestExprErrors(t *testing.T) {
	x := tagIndexOf(t)
	for exprs, want := range map[string]string{
		"":                                   "no expression",
		"host":                               "write tag=value",
		"=v":                                 "write tag=value",
		"host;x=y":                           "write tag=value",
		"host!v":                             "write tag=value",
		"host=v;":                            "without a ';'",
		"host!=v":                            "also selects series without",
		"host=~.* dc=":                       "also selects series without",
		"host=~(":                            "regular expression is not right",
		"host=~a)(b":                         "regular expression is not right",
		"host=" + strings.Repeat("x", 1<<15): "longer than",
		strings.TrimSpace(strings.Repeat("a=b ", 65)): "more than 64",
	} {
		_, err := x.FindTagged(t.Context(), strings.Fields(exprs), Budget{})
		if _, ok := errors.AsType[*ExprError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("FindTagged(%.40s) gives %v, want %q", exprs, err, want)
		}
	}
	if _, err := x.Tags(t.Context(), "(", 0); err == nil {
		t.Error("Tags takes a filter that is no regular expression")
	}
	if _, err := x.TagValues(t.Context(), "", "", 0); err == nil {
		t.Error("TagValues takes no tag")
	}
	if _, err := x.AutoCompleteValues(t.Context(), nil, "", "", 0); err == nil {
		t.Error("AutoCompleteValues takes no tag")
	}
}

// TestBacktracking checks that an expression that would run for years ends.
func TestBacktracking(t *testing.T) {
	x, err := New(Options{MatchTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	x.Add("m;k=" + strings.Repeat("a", 60) + "!")
	_, err = x.FindTagged(t.Context(), []string{`k=~(?=a)(a+)+\1$`}, Budget{})
	if _, ok := errors.AsType[*ExprError](err); !ok {
		t.Errorf("got %v, want an ExprError", err)
	}
}

func TestTags(t *testing.T) {
	x := tagIndexOf(t)
	ctx := t.Context()
	list := func(want string, got []string, err error) {
		t.Helper()
		if s := strings.Join(got, " "); err != nil || s != want {
			t.Errorf("got %q (%v), want %q", s, err, want)
		}
	}
	tags := func(filter string, limit int) ([]string, error) { return x.Tags(ctx, filter, limit) }
	complete := func(prefix string, limit int, exprs ...string) ([]string, error) {
		return x.AutoCompleteTags(ctx, exprs, prefix, limit)
	}
	values := func(tag, prefix string, limit int, exprs ...string) ([]string, error) {
		return x.AutoCompleteValues(ctx, exprs, tag, prefix, limit)
	}
	got, err := tags("", 0)
	list("dc env host k mount name", got, err)
	got, err = tags("[eh]", 0)
	list("env host", got, err)
	got, err = tags("", 2)
	list("dc env", got, err)
	got, err = complete("", 0)
	list("dc env host k mount name", got, err)
	got, err = complete("", 0, "dc=dc1")
	list("host mount name", got, err)
	got, err = complete("", 0, "dc=dc2", "name=~.", "env!=x")
	list("host", got, err)
	got, err = complete("m", 0, "dc=dc1")
	list("mount", got, err)
	got, err = complete("", 1, "dc=dc1")
	list("host", got, err)
	got, err = values("host", "", 0)
	list("db01 web01 web02", got, err)
	got, err = values("host", "web", 0)
	list("web01 web02", got, err)
	got, err = values("host", "", 0, "name=disk.used")
	list("db01 web01", got, err)
	got, err = values("host", "w", 0, "name=disk.used")
	list("web01", got, err)
	got, err = values("host", "", 1, "name=disk.used")
	list("db01", got, err)
	v, err := x.TagValues(ctx, "host", "", 0)
	if want := []Value{{"db01", 2}, {"web01", 2}, {"web02", 1}}; err != nil || !slices.Equal(v, want) {
		t.Errorf("TagValues = %v (%v), want %v", v, err, want)
	}
	v, err = x.TagValues(ctx, "name", "c|m", 1)
	if want := []Value{{"cpu", 3}}; err != nil || !slices.Equal(v, want) {
		t.Errorf("TagValues = %v (%v), want %v", v, err, want)
	}
}

// TestTagsLarge reads postings that need many locks and many blocks, against the model.
func TestTagsLarge(t *testing.T) {
	names := taggedNames(20_000)
	x := newIndex(t, names...)
	m := model{}
	for _, n := range names {
		m[n] = true
	}
	for i := 0; i < len(names); i += 3 {
		x.Remove(names[i])
		delete(m, names[i])
	}
	for _, e := range [][]string{{"namespace=team01"}, {"cluster=prod1", "node=~node00"},
		{"name=container_net_rx", "namespace=team07"}, {"namespace=~team0[1-3]", "name=container_fs_read"},
		{"pod=~web-[0-7]", "name=~container_cpu"}, {"node=node0001", "cluster!=x"}} {
		got, err := x.FindTagged(t.Context(), e, Budget{})
		if err != nil {
			t.Fatal(err)
		}
		if want := m.tagged(e); !slices.Equal(got, want) || len(want) == 0 {
			t.Errorf("FindTagged(%q) gives %d, want %d", e, len(got), len(want))
		}
	}
	values, err := x.TagValues(t.Context(), "namespace", "", 0)
	if err != nil || len(values) != 30 {
		t.Fatalf("%d namespaces (%v)", len(values), err)
	}
	for _, v := range values {
		if want := len(m.tagged([]string{"namespace=" + v.Value})); v.Count != want {
			t.Errorf("%s has %d series, want %d", v.Value, v.Count, want)
		}
	}
}

// TestCompleteMany completes a tag with many more values than are wanted.
func TestCompleteMany(t *testing.T) {
	x := newIndex(t, taggedNames(20_000)...)
	all, err := x.AutoCompleteValues(t.Context(), nil, "pod", "web-", 7)
	if err != nil || len(all) != 7 {
		t.Fatalf("%q, %v", all, err)
	}
	some, err := x.AutoCompleteValues(t.Context(), []string{"cluster=prod1"}, "pod", "web-", 7)
	if err != nil || !slices.Equal(some, all) {
		t.Errorf("with an expression %q (%v), without %q", some, err, all)
	}
}
