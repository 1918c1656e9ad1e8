package promname

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
)

// stored returns the stored name of labels.
func stored(ls labels.Labels) (string, error) {
	var b Builder
	ls.Range(func(l labels.Label) { b.Add([]byte(l.Name), []byte(l.Value)) })
	name, err := b.Append(nil)
	return string(name), err
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		labels []string
		want   string
	}{
		{"plain", []string{"__name__", "up"}, "up"},
		{"dotted", []string{"__name__", "servers.h1.cpu"}, "servers.h1.cpu"},
		{"tags", []string{"__name__", "up", "job", "node", "instance", "h1:9100"}, "up;instance=h1:9100;job=node"},
		{"byte order of the segments", []string{"__name__", "m", "a", "x", "a1", "y"}, "m;a1=y;a=x"},
		{"empty value", []string{"__name__", "m", "a", "", "b", "1"}, "m;b=1"},
		{"semicolon", []string{"__name__", "m", "a", "x;y"}, "m;a=x%3By"},
		{"tilde first", []string{"__name__", "m", "a", "~x~"}, "m;a=%7Ex~"},
		{"space and line end", []string{"__name__", "m", "a", "b c\nd 1 1"}, "m;a=b%20c%0Ad%201%201"},
		{"percent", []string{"__name__", "m", "a", "50%"}, "m;a=50%"},
		{"looks like an escape", []string{"__name__", "m", "a", "x%3By"}, "m;a=x%253By"},
		{"looks like a nested escape", []string{"__name__", "m", "a", "x%25253By"}, "m;a=x%2525253By"},
		{"25 of nothing", []string{"__name__", "m", "a", "x%2541"}, "m;a=x%2541"},
		{"metric with a semicolon", []string{"__name__", "~a;b=c"}, "%7Ea%3Bb=c"},
		{"label with odd bytes", []string{"__name__", "m", "a=b!^", "c=d"}, "m;a%3Db%21%5E=c=d"},
		{"name", []string{"__name__", "m", "name", "x"}, "m;exported_name=x"},
		{"exported name", []string{"__name__", "m", "exported_name", "x", "name", "y"},
			"m;exported_exported_name=x;exported_name=y"},
		{"UTF-8", []string{"__name__", "température", "città", "Zürich"}, "température;città=Zürich"},
	} {
		ls := labels.FromStrings(c.labels...)
		got, err := stored(ls)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
		if back := ToLabels(got); !labels.Equal(back, ls.WithoutEmpty()) {
			t.Errorf("%s: back %s; want %s", c.name, back, ls)
		}
	}
}

func TestNamesRefused(t *testing.T) {
	t.Parallel()
	for _, pairs := range [][]string{
		{"a", "b"},
		{"__name__", "a", "__name__", "b"},
		{"__name__", "a", "k", "1", "k", "2"},
		{"__name__", ""},
	} {
		var b Builder
		for i := 0; i < len(pairs); i += 2 {
			b.Add([]byte(pairs[i]), []byte(pairs[i+1]))
		}
		if got, err := b.Append(nil); err == nil {
			t.Errorf("%q: got %q; want an error", pairs, got)
		}
	}
}

func TestNamesOfGraphite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, want string }{
		{"a.b;k=50%25;l=%41", `{__name__="a.b", k="50%25", l="%41"}`},
		{"a;b", `{__name__="a;b"}`},
		{"a;", `{__name__="a;"}`},
		{"a;=x", `{__name__="a;=x"}`},
		{"a;k=", `{__name__="a;k="}`},
		{"a;__name__=x", `{__name__="a;__name__=x"}`},
		{"a;k=1;k=2", `{__name__="a", k="2"}`},
		{"a\xff;k=\xff", "{__name__=\"a\uFFFD\", k=\"\uFFFD\"}"},
	} {
		if got := ToLabels(c.name).String(); got != c.want {
			t.Errorf("%q: %s; want %s", c.name, got, c.want)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	var b Builder
	dst := make([]byte, 0, 256)
	name, job, node := []byte("__name__"), []byte("job"), []byte("node")
	if n := testing.AllocsPerRun(100, func() {
		b.Reset()
		b.Add(name, node)
		b.Add(job, node)
		dst, _ = b.Append(dst[:0])
	}); n > 0 {
		t.Errorf("%v allocations; want none", n)
	}
}

// FuzzNames checks that labels survive the way to a stored name and back, and that a canonical name survives the way to
// labels and back.
func FuzzNames(f *testing.F) {
	f.Add("up", "job", "node", "name", "x;y")
	f.Add("~a;b=c", "a=b", "~", "exported_name", "%7E%3B")
	f.Add("%257E", "%3D", "%25257E", "%253D", "%2525253B")
	f.Add("a b", "a\n", "\x7f", "b%0A", "%%%3B")
	f.Fuzz(func(t *testing.T, metric, k1, v1, k2, v2 string) {
		for _, s := range []string{metric, k1, v1, k2, v2} {
			if s == "" || !utf8.ValidString(s) {
				t.Skip()
			}
		}
		if k1 == labels.MetricName || k2 == labels.MetricName || k1 == k2 {
			t.Skip()
		}
		ls := labels.FromStrings(labels.MetricName, metric, k1, v1, k2, v2)
		name, err := stored(ls)
		if err != nil {
			t.Fatalf("%s: %v", ls, err)
		}
		if strings.ContainsAny(name, " \n\t\r") || strings.HasPrefix(name, "~") || strings.Count(name, ";") != 2 {
			t.Fatalf("%s: %q is no canonical name", ls, name)
		}
		if back := ToLabels(name); !labels.Equal(back, ls) {
			t.Fatalf("%s: %q: back %s", ls, name, back)
		}
		// The texts as parts of a Graphite name.
		for _, s := range []string{metric, k1, v1, k2, v2} {
			for i := range len(s) {
				if needsEscape(s[i], i, inTag) || s[i] == '~' {
					return
				}
			}
		}
		if strings.HasPrefix(k1, "exported_") || strings.HasPrefix(k2, "exported_") || k1 == "name" || k2 == "name" {
			return
		}
		if k1+"=" > k2+"=" {
			k1, v1, k2, v2 = k2, v2, k1, v1
		}
		native := metric + ";" + k1 + "=" + v1 + ";" + k2 + "=" + v2
		ls = ToLabels(native)
		if ls.Len() != 3 {
			return // Two tags that are one label.
		}
		if again, err := stored(ls); err != nil || again != native {
			t.Fatalf("%q: %s: again %q, %v", native, ls, again, err)
		}
	})
}
