package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"
)

// model is a plain map of names with slow and obvious queries.
type model map[string]bool

// translate writes the pattern of one node as a regular expression, by recursion where the index expands.
func translate(p string) string {
	var b strings.Builder
	var walk func(p string) // writes p
	closing := func(p string, i int) int {
		depth := 0
		for ; i < len(p); i++ {
			switch p[i] {
			case '\\':
				i++
			case '{':
				depth++
			case '}':
				if depth--; depth == 0 {
					return i
				}
			}
		}
		return -1
	}
	walk = func(p string) {
		for i := 0; i < len(p); {
			switch p[i] {
			case '*':
				b.WriteString(`(?s:.*)`)
				i++
			case '?':
				b.WriteString(`(?s:.)`)
				i++
			case '{':
				end := closing(p, i)
				if end < 0 {
					b.WriteString(`\{`)
					i++
					continue
				}
				b.WriteString(`(?:`)
				depth, start := 0, i+1
				for j := i + 1; j < end; j++ {
					switch {
					case p[j] == '\\':
						j++
					case p[j] == '{':
						depth++
					case p[j] == '}':
						depth--
					case p[j] == ',' && depth == 0:
						walk(p[start:j])
						b.WriteString(`|`)
						start = j + 1
					}
				}
				walk(p[start:end])
				b.WriteString(`)`)
				i = end + 1
			case '\\':
				if i+1 < len(p) {
					i++
				}
				_, n := utf8.DecodeRuneInString(p[i:])
				b.WriteString(regexp.QuoteMeta(p[i : i+n]))
				i += n
			case '[':
				j := i + 1
				if j < len(p) && p[j] == '!' {
					j++
				}
				if j < len(p) && p[j] == ']' {
					j++
				}
				for j < len(p) && p[j] != ']' {
					j++
				}
				if j >= len(p) {
					b.WriteString(`\[`)
					i++
					continue
				}
				in := p[i+1 : j]
				b.WriteString("[")
				if in[0] == '!' {
					in = in[1:]
					b.WriteString("^")
				}
				chars := []rune(in)
				for k := 0; k < len(chars); k++ {
					lo, hi := chars[k], chars[k]
					if k+2 < len(chars) && chars[k+1] == '-' {
						hi = chars[k+2]
						k += 2
					}
					if lo <= hi {
						fmt.Fprintf(&b, `\x{%x}-\x{%x}`, lo, hi)
					}
				}
				if strings.HasSuffix(b.String(), "[") { // no range: nothing
					b.WriteString(`^\x{0}-\x{10ffff}`)
				} else if strings.HasSuffix(b.String(), "[^") { // all but nothing
					s := strings.TrimSuffix(b.String(), "^")
					b.Reset()
					b.WriteString(s + `\x{0}-\x{10ffff}`)
				}
				b.WriteString("]")
				i = j + 1
			default:
				_, n := utf8.DecodeRuneInString(p[i:])
				b.WriteString(regexp.QuoteMeta(p[i : i+n]))
				i += n
			}
		}
	}
	walk(p)
	return `\A(?:` + b.String() + `)\z`
}

func (m model) find(t testing.TB, pattern string) []Node {
	if strings.Contains(pattern, ";") {
		if m[pattern] {
			return []Node{{pattern, true, false}}
		}
		return nil
	}
	parts := strings.Split(pattern, ".")
	if parts[len(parts)-1] == "**" {
		parts = append(parts, "*")
	}
	res := make([]*regexp.Regexp, len(parts))
	for i, p := range parts {
		if p != "**" {
			re, err := regexp.Compile(translate(p))
			if err != nil {
				t.Fatalf("the model cannot read %q: %v", p, err)
			}
			res[i] = re
		}
	}
	var match func(nodes []string, res []*regexp.Regexp) bool
	match = func(nodes []string, res []*regexp.Regexp) bool {
		switch {
		case len(res) == 0:
			return len(nodes) == 0
		case res[0] == nil:
			return match(nodes, res[1:]) || len(nodes) > 0 && match(nodes[1:], res)
		}
		return len(nodes) > 0 && res[0].MatchString(nodes[0]) && match(nodes[1:], res[1:])
	}
	found := map[string]Node{}
	for name := range m {
		if strings.Contains(name, ";") {
			continue
		}
		nodes := strings.Split(name, ".")
		for i := 1; i <= len(nodes); i++ {
			if !match(nodes[:i], res) {
				continue
			}
			path := strings.Join(nodes[:i], ".")
			n := found[path]
			n.Path = path
			n.Leaf = n.Leaf || i == len(nodes)
			n.Branch = n.Branch || i < len(nodes)
			found[path] = n
		}
	}
	var all []Node
	for _, n := range found {
		all = append(all, n)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Path < all[j].Path })
	return all
}

func (m model) tagged(exprs []string) []string {
	var names []string
	for name := range m {
		if !strings.Contains(name, ";") {
			continue
		}
		parts := strings.Split(name, ";")
		tags := map[string]string{"name": strings.TrimLeft(parts[0], "~")}
		good := tags["name"] != ""
		for _, p := range parts[1:] {
			k, v, ok := strings.Cut(p, "=")
			good = good && ok && k != "" && v != "" && v[0] != '~' && !strings.ContainsAny(k, "!^ ")
			if k != "name" {
				tags[k] = v
			}
		}
		all := good
		for _, e := range exprs {
			var k, v string
			var not, ok bool
			if k, v, ok = strings.Cut(e, "!="); ok {
				not = true
			} else {
				k, v, _ = strings.Cut(e, "=")
			}
			if re, isRe := strings.CutPrefix(v, "~"); isRe {
				ok = regexp.MustCompile(`^(?:` + re + `)`).MatchString(tags[k])
			} else {
				ok = tags[k] == v
			}
			all = all && ok != not
		}
		if all {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func newIndex(t testing.TB, names ...string) *Index {
	t.Helper()
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	x.AddMany(names)
	return x
}

// checkKeyset compares the counts of a keyset with its keys.
func checkKeyset(t testing.TB, s *keyset) {
	t.Helper()
	n := 0
	var cost int64
	var last []byte
	for _, p := range s.pages {
		inPage := 0
		if len(p.blocks) == 0 || len(p.blocks) > pageBlocks {
			t.Fatalf("a page has %d blocks", len(p.blocks))
		}
		for _, b := range p.blocks {
			var l keylist
			b.decode(&l)
			if l.len() != b.keys || b.keys == 0 || b.keys > blockKeys {
				t.Fatalf("a block says %d keys and has %d", b.keys, l.len())
			}
			for i := range l.len() {
				if n+inPage+i > 0 && string(last) >= string(l.at(i)) {
					t.Fatalf("key %q is not behind %q", l.at(i), last)
				}
				last = append(last[:0], l.at(i)...)
			}
			inPage += b.keys
			cost += b.cost()
		}
		if inPage != p.keys {
			t.Fatalf("a page says %d keys and has %d", p.keys, inPage)
		}
		n += inPage
	}
	if n != s.keys {
		t.Fatalf("the set says %d keys and has %d", s.keys, n)
	}
	if cost != s.bytes {
		t.Fatalf("the set says %d bytes and has %d", s.bytes, cost)
	}
}

func check(t testing.TB, x *Index) {
	t.Helper()
	checkKeyset(t, &x.paths)
	checkKeyset(t, &x.tags.names)
	checkKeyset(t, &x.tags.postings)
}

func randomName(r *rand.Rand) string {
	pick := func(s string) string {
		words := strings.Fields(s)
		return words[r.IntN(len(words))]
	}
	if r.IntN(2) == 0 {
		name := pick("cpu cpu.idle mem disk net.é")
		for _, tag := range []string{"dc", "host", "name", "z-bad"} {
			switch r.IntN(3) {
			case 0:
				name += fmt.Sprintf(";%s=v%d", tag, r.IntN(20))
			case 1:
				name += fmt.Sprintf(";%s=%s", tag, pick("a b ab abc"))
			}
		}
		if !strings.Contains(name, ";") {
			name += pick(";dc=~bad ;bad ; ;dc= ;host=h")
		}
		return name
	}
	n := 1 + r.IntN(5)
	nodes := make([]string, n)
	for i := range nodes {
		nodes[i] = pick("a b c ab abc a-b a+b cpu0 cpu1 cpu10 total idle é èa {x} [y] A ! ~ * ?")
		if r.IntN(20) == 0 {
			nodes[i] = ""
		}
		if r.IntN(4) == 0 {
			nodes[i] = fmt.Sprintf("h%03d", r.IntN(200))
		}
	}
	return strings.Join(nodes, ".")
}

func randomPattern(r *rand.Rand) string {
	words := strings.Fields("a b ab* *b ? ?? * * * ** a{b,-b}* {a,b,c} {a,{b,c}c} cpu{0,1}* [ab] [!a]* " +
		"[a-c]? h0* h{0,1}[0-9]5 h001 {x} \\{x\\} [y] \\[y] \\* {} {a [a a} é {é,è}* *0 h*5 total idle cpu* [!]] []a] a{,b}{,c} **a")
	n := 1 + r.IntN(5)
	nodes := make([]string, n)
	for i := range nodes {
		nodes[i] = words[r.IntN(len(words))]
	}
	return strings.Join(nodes, ".")
}

func randomExprs(r *rand.Rand) []string {
	words := strings.Fields("dc=a dc=v1 dc!=a dc=~a dc=~v1 dc!=~v host=b host=~. host!=~. host= host!= host=~(a|v1)$ " +
		"name=cpu name=~c name!=cpu host!=~^$ z-bad=ab z-bad= dc=~.* dc!=~.*")
	exprs := []string{words[r.IntN(len(words))]}
	for r.IntN(2) == 0 {
		exprs = append(exprs, words[r.IntN(len(words))])
	}
	return exprs
}

func TestModel(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 1))
		x := newIndex(t)
		m := model{}
		for round := range 40 {
			grow := round%20 < 12
			for range 150 {
				name := randomName(r)
				switch {
				case grow || r.IntN(4) == 0:
					if r.IntN(3) == 0 {
						names := []string{name, randomName(r), name, randomName(r)}
						want := 0
						for _, n := range names {
							if !m[n] && n != "" {
								want++
								m[n] = true
							}
						}
						if got := x.AddMany(names); got != want {
							t.Fatalf("AddMany(%q) = %d, want %d", names, got, want)
						}
						continue
					}
					if got, want := x.Add(name), !m[name] && name != ""; got != want {
						t.Fatalf("Add(%q) = %v, want %v", name, got, want)
					}
					if name != "" {
						m[name] = true
					}
				default:
					if len(m) > 0 && r.IntN(2) == 0 {
						names := make([]string, 0, len(m))
						for n := range m {
							names = append(names, n)
						}
						slices.Sort(names)
						for range 20 {
							n := names[r.IntN(len(names))]
							if got := x.Remove(n); got != m[n] {
								t.Fatalf("Remove(%q) = %v, want %v", n, got, m[n])
							}
							delete(m, n)
						}
					}
					if got := x.Remove(name); got != m[name] {
						t.Fatalf("Remove(%q) = %v, want %v", name, got, m[name])
					}
					delete(m, name)
				}
				if x.Has(name) != m[name] {
					t.Fatalf("Has(%q) = %v, want %v", name, !m[name], m[name])
				}
			}
			if x.Len() != len(m) {
				t.Fatalf("Len is %d, want %d", x.Len(), len(m))
			}
			check(t, x)
			for range 15 {
				p := randomPattern(r)
				compareFind(t, x, m, p)
			}
			for range 10 {
				e := randomExprs(r)
				got, err := x.FindTagged(ctx, e, Budget{})
				if err != nil {
					if !strings.Contains(err.Error(), "also selects series without") {
						t.Fatal(err)
					}
					continue
				}
				if want := m.tagged(e); !slices.Equal(got, want) {
					t.Fatalf("FindTagged(%q) = %q, want %q", e, got, want)
				}
			}
			var all []string
			if err := x.All(ctx, func(n string) bool { all = append(all, n); return true }); err != nil {
				t.Fatal(err)
			}
			slices.Sort(all)
			want := make([]string, 0, len(m))
			for n := range m {
				want = append(want, n)
			}
			slices.Sort(want)
			if !slices.Equal(all, want) {
				t.Fatalf("All gives %d names, want %d", len(all), len(want))
			}
		}
		for n := range m {
			x.Remove(n)
		}
		check(t, x)
		if x.Len() != 0 || len(x.paths.pages) != 0 || len(x.tags.postings.pages) != 0 {
			t.Fatalf("an emptied index has %d names and %d postings", x.Len(), x.tags.postings.keys)
		}
	}
}

func compareFind(t testing.TB, x *Index, m model, pattern string) {
	t.Helper()
	got, err := x.Find(context.Background(), pattern, Budget{})
	if err != nil {
		t.Fatalf("Find(%q): %v", pattern, err)
	}
	want := m.find(t, pattern)
	if !slices.Equal(got, want) {
		t.Fatalf("Find(%q) = %v\nwant %v", pattern, got, want)
	}
	var names []string
	for _, n := range want {
		if n.Leaf {
			names = append(names, n.Path)
		}
	}
	leaves, err := x.Leaves(context.Background(), pattern, Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(leaves, names) {
		t.Fatalf("Leaves(%q) = %q, want %q", pattern, leaves, names)
	}
}
