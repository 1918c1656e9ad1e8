package filter

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dop251/goja/parser"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// fillValue gives every field of a value something to show.
func fillValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillValue(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fillValue(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), reflect.ValueOf("value"))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64, reflect.Float32:
		v.SetFloat(1.5)
	}
}

// TestEventsArriveWhole: a worker sees all fields of an event that the backend has, new ones too.
func TestEventsArriveWhole(t *testing.T) {
	full := &resource.Event{}
	fillValue(reflect.ValueOf(full).Elem())
	for _, ev := range []*resource.Event{full, {}, {Entity: &resource.Entity{}}, {Check: &resource.Check{}, Metrics: &resource.Metrics{}}} {
		r := readFields(append(appendEvent(nil, ev), "rest"...))
		got := r.event()
		if r.Err() != nil || !reflect.DeepEqual(got, ev) || string(r.Rest) != "rest" {
			t.Errorf("%+v arrives as %+v, %v", ev, got, r.Err())
		}
	}
	cfg, system := &resource.EntityConfig{}, &resource.System{}
	fillValue(reflect.ValueOf(cfg).Elem())
	fillValue(reflect.ValueOf(system).Elem())
	r := readFields(appendEntity(appendEntity(nil, cfg, system), cfg, nil))
	gotCfg, gotSystem := r.entity()
	if r.Err() != nil || !reflect.DeepEqual(gotCfg, cfg) || !reflect.DeepEqual(gotSystem, system) {
		t.Errorf("%+v and %+v arrive, %v", gotCfg, gotSystem, r.Err())
	}
	if gotCfg, gotSystem = r.entity(); !reflect.DeepEqual(gotCfg, cfg) || gotSystem != nil || len(r.Rest) != 0 {
		t.Errorf("%+v and %+v arrive, %v", gotCfg, gotSystem, r.Err())
	}
}

func TestVerdictsArriveWhole(t *testing.T) {
	for _, want := range []verdict{
		{source: 3, truth: true, took: time.Second, cpu: 2, saw: []Value{{"a", "b"}, {"", ""}}},
		{err: errTimeout}, {err: errMemory}, {err: &told{"text", false}}, {err: &told{"text", true}},
	} {
		r := readFields(appendVerdict(nil, &want))
		got := r.verdict()
		if !reflect.DeepEqual(got, want) && (want.err == nil || got.err == nil || got.err.Error() != want.err.Error()) {
			t.Errorf("%+v arrives as %+v", want, got)
		}
	}
	if v := readFields(appendVerdict(nil, &verdict{err: errSyntax})).verdict(); !errors.Is(v.err, errSyntax) {
		t.Error("a mistake is not told from an exception")
	}
}

func TestScan(t *testing.T) {
	f := func(source string, refused bool) {
		t.Helper()
		if err := scan(source); (err != nil) != refused {
			t.Errorf("%.60s: %v", source, err)
		}
	}
	for _, open := range []string{"(", "[", "{", "([{", "`${", "f(", "a[", "/x/.test((", "'(' + (", "a / b / ((", "return /[/](/.test(("} {
		f(strings.Repeat(open, maxNesting+1), true)
	}
	for _, chain := range []string{"!", "-", "new ", "a=", "a?b:", "1+", "a=>", "a.b", "if(1)", "x:", "()", "typeof "} {
		f(strings.Repeat(chain, maxChain+1), true)
	}
	f(strings.Repeat("if(a)b();else ", maxElse+1), true)
	f(strings.Repeat("(", maxNesting)+strings.Repeat(")", maxNesting), false)
	f(strings.Repeat("a();\n", 100_000), false)
	f("["+strings.Repeat("{a:1},", 100_000)+"]", false)
	f(`"`+strings.Repeat("(", 100_000)+`"`, false)
	f("/"+strings.Repeat("[(]", 10_000)+"/.test('x')", false)
	f("//"+strings.Repeat("(", 100_000)+"\n/*"+strings.Repeat("{", 100_000)+"*/1", false)
	f("`"+strings.Repeat("{", 100_000)+"${1}`", false)
}

// FuzzScan parses the sources that the scan accepts, on a stack of the assumed size.
func FuzzScan(f *testing.F) {
	for _, s := range []string{"event.check.status == 2", "`${a}`", "/[/]/.test(x)", "a / b / c", "'\\''", "/*", "if (a) b; else c", "${`", "}", "\xff"} {
		f.Add(s, uint16(1))
		f.Add(s, uint16(300))
	}
	f.Fuzz(func(t *testing.T, part string, times uint16) {
		source := strings.Repeat(part, int(times)%512)
		if len(source) > MaxExpression {
			source = source[:MaxExpression]
		}
		if scan(source) == nil {
			parser.ParseFile(nil, "", source, 0, parser.WithDisableSourceMaps) //nolint:errcheck // that it ends is what counts
		}
	})
}

// FuzzFrames reads frames that no worker sends.
func FuzzFrames(f *testing.F) {
	f.Add(endFrame(append(frame(nil, frameAnswer), appendVerdict(appendFailed(nil, nil), &verdict{saw: []Value{{"a", "b"}}})...), 0))
	f.Add(endFrame(appendEvent(frame(nil, frameEvents), &resource.Event{Check: &resource.Check{}}), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, body, _, err := readFrame(bytes.NewReader(b), nil)
		if err != nil {
			return
		}
		r := readFields(body)
		r.failedFiles()
		for len(r.Rest) > 0 {
			r.verdict()
		}
		readFields(body).event()
		readFields(body).entity()
		readFields(body).question(3)
		_, _ = readProgram(body)
		_, _, _ = lookUp(noEvents{}, "", body)
	})
}

// noEvents is a source without events.
type noEvents struct{}

func (noEvents) Event(string, string, string) (*resource.Event, error) { return nil, errNoPool }

func (noEvents) Events(string, string, string, int) ([]*resource.Event, string, error) {
	return nil, "", errNoPool
}
