package name

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"servers.h1.cpu", "servers.h1.cpu"},
		{"m;a=x;a1=y", "m;a1=y;a=x"},
		{"m;b=2;a=1;b=3", "m;a=1;b=3"},
		{"~~m;name=zz;k=v", "m;k=v"},
		{"~m", "m"},
		{"m;a=b=c", "m;a=b=c"},
		{"m;name=x", "m"},
		{"disk.used;host=web01;dc=dc1", "disk.used;dc=dc1;host=web01"},
		{"m;ab=1;a-b=1;a=1", "m;a-b=1;a=1;ab=1"},
		{"m;a=v~", "m;a=v~"},
		{`m{b="2",a="1"}`, "m;a=1;b=2"},
		{`m{b="2",a="1",}`, `m{b="2",a="1",}`}, // does not end in "}
		{`m{a="x\"y\\z\n"}`, `m;a=x"y\z\n`},
		{`m{a="1,b=2"}`, "m;a=1,b=2"},
		{`m{a="x{y=\"z\"}"}`, `m;a=x{y="z"}`},
		{`m;a=x{y="z"}`, `m;a=x{y="z"}`},
		{`~m{name="x"}`, "m"},
		{"m\xff;a=\xfe", "m\xff;a=\xfe"},
	} {
		got, err := Canonical([]byte(tc.name))
		if err != nil || string(got) != tc.want {
			t.Errorf("Canonical(%q) = %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
}

func TestCanonicalErrors(t *testing.T) {
	many := "m"
	for i := range MaxTags + 1 {
		many += fmt.Sprintf(";t%d=x", i)
	}
	for _, tc := range []struct{ name, want string }{
		{"", "no metric"},
		{"~~", "no metric"},
		{"~;a=b", "no metric"},
		{";a=b", "no metric"},
		{"m;", "has no ="},
		{"m;a", "has no ="},
		{"m;a=1;", "has no ="},
		{"m;=x", "no name"},
		{"m;a=", "has no value"},
		{"m;a=~x", "begins with ~"},
		{"m;a!b=x", "one of ; ! ^ ="},
		{"m;a^b=x", "one of ; ! ^ ="},
		{"m;a b=x", "a blank"},
		{many, "more than 256 tags"},
		{`m{"}`, "no tag="},
		{`m{a=""}`, "has no value"},
		{`m{="x"}`, "no name"},
		{`m{a="x"b="y"}`, "no comma"},
		{`m{a="x\"}`, "has no end"},
		{`{a="x"}`, "no metric"},
		{`m{a="x"};b=1`, "two ways"},
		{`m{a=";"}`, "has no ="}, // the semicolon begins a segment
	} {
		got, err := Canonical([]byte(tc.name))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Canonical(%.40q) = %q, %v; want an error with %q", tc.name, got, err, tc.want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("Canonical(%.40q): an error of %d bytes", tc.name, len(err.Error()))
		}
	}
}

func TestParse(t *testing.T) {
	metric, tags, err := Parse("~disk.used;host=web01;dc=dc1;name=x;host=web02")
	if err != nil || metric != "disk.used" || !slices.Equal(tags, []Tag{{"dc", "dc1"}, {"host", "web02"}}) {
		t.Errorf("Parse = %q, %v, %v", metric, tags, err)
	}
}

func TestHasTags(t *testing.T) {
	for name, want := range map[string]bool{"": false, "a.b": false, "a;b=c": true, `a{b="c"}`: true, `a{b}`: false,
		`"`: false} {
		if HasTags(name) != want || HasTags([]byte(name)) != want {
			t.Errorf("HasTags(%q) is not %v", name, want)
		}
	}
}

func TestClean(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"a.b", "a.b"},
		{"", ""},
		{".", ""},
		{"..a..b..", "a.b"},
		{"a.", "a"},
		{".a", "a"},
		{"a b\tc\x00d\x7f", "a_b_c_d_"},
		{"a/b.c(d)-_:#", "a/b.c(d)-_:#"},
		{"é.b", "é.b"},
		{"a..b;t=x..y z", "a.b;t=x..y z"},
		{"a.;t=x", "a;t=x"},
	} {
		in := []byte(tc.name)
		if got := Clean(in); string(got) != tc.want {
			t.Errorf("Clean(%q) = %q, want %q", tc.name, got, tc.want)
		}
		if string(in) != tc.name {
			t.Errorf("Clean changed %q into %q", tc.name, in)
		}
	}
}

func TestNothingToDoAllocatesNothing(t *testing.T) {
	name := []byte("servers.h1.cpu.total.idle")
	if n := testing.AllocsPerRun(100, func() {
		got, err := Canonical(name)
		if err != nil || HasTags(name) || len(Clean(got)) != len(name) {
			t.Error("the name changed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"a.b", "m;a=x;a1=y", "~~m;name=zz;k=v", `m{b="2",a="1"}`, `m{a="x{y=\"z\"}"}`,
		`m{x"};name=1`, `m{;b="};a=1`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, name []byte) {
		before := bytes.Clone(name)
		once, err := Canonical(name)
		if !bytes.Equal(before, name) {
			t.Fatalf("Canonical changed its argument %q into %q", before, name)
		}
		if err != nil {
			return
		}
		twice, err := Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("Canonical(%q) = %q, again: %q, %v", name, once, twice, err)
		}
		metric, tags, err := Parse(string(once))
		if err != nil {
			t.Fatalf("Parse(%q): %v", once, err)
		}
		if !bytes.Equal(Append(nil, metric, tags), once) {
			t.Fatalf("Append of %q, %v is not %q", metric, tags, once)
		}
		for i, tag := range tags {
			segment := tag.Name + "=" + tag.Value
			if i > 0 && tags[i-1].Name+"="+tags[i-1].Value >= segment {
				t.Fatalf("%q: tags are not sorted", once)
			}
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add([]byte("..a. b..c;x=..")) // all rules at once
	f.Fuzz(func(t *testing.T, name []byte) {
		once := Clean(name)
		if twice := Clean(once); !bytes.Equal(once, twice) {
			t.Fatalf("Clean(%q) = %q, again: %q", name, once, twice)
		}
	})
}

func BenchmarkCanonical(b *testing.B) {
	for _, name := range []string{"servers.h1.cpu.total.idle", "disk.used;dc=dc1;host=web01"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Canonical([]byte(name)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
