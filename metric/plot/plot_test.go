package plot

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/render"
)

var images = flag.String("images", "", "directory to write the sample images to, to look at them")

const start = 1700000000

// wave is a series of n points, a minute apart, with some gaps.
func wave(name string, n int, high, phase float64) *render.Series {
	s := &render.Series{Name: name, Start: start, Step: 60, End: start + int64(n)*60, Values: make([]float64, n)}
	for i := range s.Values {
		s.Values[i] = high * (0.5 + 0.3*math.Sin(float64(i)/40+phase) + 0.1*math.Sin(float64(i)/7+phase*3))
		if i%97 > 90 {
			s.Values[i] = math.NaN()
		}
	}
	return s
}

func with(s *render.Series, d render.Draw) *render.Series {
	s.Draw = d
	return s
}

func several(n int) []*render.Series {
	var list []*render.Series
	for i := range n {
		list = append(list, wave(fmt.Sprintf("servers.h%d.cpu.total.user", i+1), 360, 40+float64(i)*15, float64(i)))
	}
	return list
}

var samples = []struct {
	name, query string
	list        func() []*render.Series
}{
	{"plain", "", func() []*render.Series { return several(1) }},
	{"nothing", "title=x", func() []*render.Series { return nil }},
	{"lines", "width=800&height=300&title=CPU+of+the+servers&vtitle=percent",
		func() []*render.Series { return several(5) }},
	{"dark", "width=800&height=300&title=CPU&template=dark", func() []*render.Series { return several(7) }},
	{"stacked", "width=800&height=300&areaMode=stacked&tz=Asia/Tokyo", func() []*render.Series { return several(4) }},
	{"areas", "width=800&height=300&areaMode=all", func() []*render.Series { return several(2) }},
	{"first", "width=600&height=300&areaMode=first&lineMode=staircase", func() []*render.Series {
		return []*render.Series{wave("a", 40, 1e6, 1), wave("b", 40, 2e6, 2)}
	}},
	{"connected", "width=600&height=300&lineMode=connected&yMax=60&yMin=10",
		func() []*render.Series { return several(3) }},
	{"many", "width=800&height=400&hideLegend=false", func() []*render.Series { return several(60) }},
	{"toomany", "width=600&height=300", func() []*render.Series {
		var list []*render.Series
		for i := range MaxSeries + 7 {
			list = append(list, wave("x", 10, float64(i), float64(i)))
		}
		return list
	}},
	{"log", "width=600&height=300&logBase=10&yUnitSystem=binary", func() []*render.Series {
		return []*render.Series{wave("a", 200, 1e6, 1), wave("b", 200, 10, 2)}
	}},
	{"drawn", "width=700&height=300&title=Drawing+of+11+secondYAxis+AVA", func() []*render.Series {
		deploys := wave("deploys", 300, 1, 0)
		for i := range deploys.Values {
			deploys.Values[i] = math.NaN()
		}
		deploys.Values[50], deploys.Values[200] = 1, 1
		return []*render.Series{
			with(wave("removeBelowValue(requests.To.11)", 300, 3000, 0), render.Draw{Color: "darkgreen", LineWidth: 2.5}),
			with(wave("limit", 300, 2000, 0), render.Draw{Dashed: 5, Color: "#c9514a"}),
			with(wave("latency", 300, 0.05, 2), render.Draw{SecondYAxis: true}),
			with(deploys, render.Draw{DrawAsInfinite: true, Color: "grey"}),
		}
	}},
	{"between", "width=700&height=300", func() []*render.Series {
		low, high := wave("low", 300, 100, 0), wave("high", 300, 160, 0)
		return []*render.Series{
			with(low, render.Draw{Stacked: true, Invisible: true, StackName: "a"}),
			with(high, render.Draw{Stacked: true, StackName: "a", Color: "blue"}),
			wave("middle", 300, 130, 0),
		}
	}},
	{"graphonly", "width=200&height=60&graphOnly=true&areaMode=all", func() []*render.Series { return several(1) }},
	{"small", "width=20&height=20", func() []*render.Series { return several(3) }},
	{"noaxes", "width=300&height=150&hideAxes=true&hideGrid=true", func() []*render.Series { return several(2) }},
	{"week", "width=900&height=250&hideLegend=true", func() []*render.Series {
		return []*render.Series{wave("a", 10000, 1, 0)}
	}},
	{"year", "width=900&height=250&fontSize=12", func() []*render.Series {
		s := wave("a.long.name.with\x01control <&> characters \u00e9\u00fc", 9000, -5e-3, 0)
		s.Step = 3600
		return []*render.Series{s}
	}},
	{"extremes", "drawNullAsZero=true", func() []*render.Series {
		return []*render.Series{{Name: "x", Start: start, Step: 10, Values: []float64{math.MaxFloat64, -math.MaxFloat64,
			math.Inf(1),
			math.Inf(-1), math.NaN(), 0, 5e-324}}}
	}},
	{"constant", "", func() []*render.Series {
		return []*render.Series{{Name: "x", Start: start, Step: 10, Values: []float64{5, 5, 5}},
			{Name: "no values", Start: start, Step: 10},
			{Name: "no step", Start: start, Values: []float64{1}}}
	}},
	{"dot", "areaMode=stacked", func() []*render.Series {
		return []*render.Series{{Name: "x", Start: start, Step: 10, Values: []float64{math.NaN(), 7, math.NaN()}}}
	}},
}

func optionsOf(t *testing.T, query string) Options {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	o, err := ParseOptions(values.Get)
	if err != nil {
		t.Fatal(err)
	}
	if zone := values.Get("tz"); zone != "" {
		if o.Location, err = time.LoadLocation(zone); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestSamples(t *testing.T) {
	for _, s := range samples {
		o := optionsOf(t, s.query)
		var raster, vector bytes.Buffer
		if err := PNG(t.Context(), &raster, s.list(), o); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if err := SVG(t.Context(), &vector, s.list(), o); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if *images != "" {
			for ext, b := range map[string][]byte{".png": raster.Bytes(), ".svg": vector.Bytes()} {
				if err := os.WriteFile(filepath.Join(*images, s.name+ext), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		checkXML(t, s.name, vector.Bytes())
		picture, err := png.Decode(&raster)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		if size := picture.Bounds().Size(); size.X != o.Width || size.Y != o.Height {
			t.Errorf("%s: the image is %v", s.name, size)
		}
	}
}

func checkXML(t *testing.T, name string, b []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := PNG(ctx, io.Discard, several(3), DefaultOptions()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := SVG(ctx, io.Discard, several(3), DefaultOptions()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWrongOptions(t *testing.T) {
	for query, want := range map[string]string{
		"width=0": "width", "height=9999": "height", "width=4000&height=4000": "pixels", "lineMode=x": "lineMode",
		"areaMode=x":   "areaMode",
		"lineWidth=-1": "lineWidth", "yMin=x": "yMin", "yMax=nan": "yMax", "logBase=-2": "logBase",
		"colorList=red,nosuch": "colorList",
		"bgcolor=%23ggg":       "bgcolor", "hideAxes=maybe": "hideAxes", "title=" + strings.Repeat("a", 600): "title",
		"yUnitSystem=x": "yUnitSystem",
		"colorList=" + strings.Repeat("red,", 200) + "red": "colorList", "areaAlpha=2": "areaAlpha",
	} {
		values, _ := url.ParseQuery(query)
		if _, err := ParseOptions(values.Get); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func TestColors(t *testing.T) {
	for text, want := range map[string]string{"red": "200 0 50 255", "#fff": "255 255 255 255", "1a2b3c": "26 43 60 255",
		"#1A2B3C80": "26 43 60 128", "f00": "255 0 0 255"} {
		c, ok := parseColor(text)
		if got := fmt.Sprint(c.R, c.G, c.B, c.A); !ok || got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"", "#", "nosuch", "#12345", "+12345", "-fff"} {
		if c, ok := parseColor(text); ok {
			t.Errorf("%q: %v", text, c)
		}
	}
}

func labels(list []tick) string {
	var texts []string
	for _, t := range list {
		texts = append(texts, t.label)
	}
	return strings.Join(texts, ", ")
}

func TestScales(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		low, high, fixedLow, fixedHigh float64
		query, want                    string
	}{
		{0, 10, nan, nan, "", "0, 2, 4, 6, 8, 10"}, {0, 1, nan, nan, "", "0, 0.2, 0.4, 0.6, 0.8, 1"},
		{3, 4, nan, nan, "", "3, 3.2, 3.4, 3.6, 3.8, 4"}, {0, 9.3e6, nan, nan, "", "0, 2 M, 4 M, 6 M, 8 M, 10 M"},
		{0, 1500, nan, nan, "", "0, 500, 1 k, 1.5 k"}, {0, 4096, nan, nan, "yUnitSystem=binary", "0, 1 Ki, 2 Ki, 3 Ki, 4 Ki"},
		{0, 9.3e6, nan, nan, "yUnitSystem=none", "0, 2000000, 4000000, 6000000, 8000000, 10000000"},
		{5, 5, nan, nan, "", "4.4, 4.6, 4.8, 5, 5.2, 5.4, 5.6"}, {nan, nan, nan, nan, "", "0, 0.2, 0.4, 0.6, 0.8, 1"},
		{-3, 7, 0, 6, "", "0, 2, 4, 6"}, {0, 5, 9, nan, "", "9, 9.2, 9.4, 9.6, 9.8, 10"},
		{0, 1e-6, nan, nan, "", "0, 2e-07, 4e-07, 6e-07, 8e-07, 1e-06"},
		{1, 2500, nan, nan, "logBase=10", "1, 10, 100, 1 k, 10 k"}, {0.5, 7, nan, nan, "logBase=2", "0.5, 1, 2, 4, 8"},
		{-100, -1, nan, nan, "", "-100, -80, -60, -40, -20, 0"},
	} {
		o := optionsOf(t, c.query)
		s := newScale(c.low, c.high, c.fixedLow, c.fixedHigh, 5, &o)
		if got := labels(s.ticks); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestTimeTicks(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(s string) int64 {
		v, err := time.ParseInLocation("2006-01-02 15:04", s, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return v.Unix()
	}
	width := func(s string) float64 { return float64(6 * len(s)) }
	for _, c := range []struct{ from, until, want string }{
		{"2026-11-21 10:00", "2026-11-21 10:01", "10:00:00, 10:00:10, 10:00:20, 10:00:30, 10:00:40, 10:00:50, 10:01:00"},
		{"2026-11-21 10:07", "2026-11-21 12:30", "10:30, 11:00, 11:30, 12:00, 12:30"},
		{"2026-11-20 20:30", "2026-11-21 03:30", "21:00, 22:00, 23:00, Nov 21, 01:00, 02:00, 03:00"},
		{"2026-10-24 20:00", "2026-10-26 02:00", "Sun 00:00, Sun 06:00, Sun 12:00, Sun 18:00, Mon 00:00"}, // 25 hours
		{"2026-11-21 10:00", "2026-12-20 10:00", "Nov 23, Nov 30, Dec 7, Dec 14"},
		{"2026-03-21 10:00", "2027-02-20 10:00", "May 2026, Jul 2026, Sep 2026, Nov 2026, Jan 2027"},
		{"2006-03-21 10:00", "2026-02-20 10:00", "2008, 2010, 2012, 2014, 2016, 2018, 2020, 2022, 2024, 2026"},
	} {
		if got := labels(timeTicks(at(c.from), at(c.until), berlin, 400, width)); got != c.want {
			t.Errorf("%s to %s: %s", c.from, c.until, got)
		}
	}
	for _, span := range [][2]int64{{5, 5}, {-1 << 40, 1 << 40}, {0, 1 << 55}, {-1 << 55, 0}} {
		if n := len(timeTicks(span[0], span[1], berlin, 400, width)); n > maxTicks {
			t.Errorf("%v: %d ticks", span, n)
		}
	}
}

func FuzzOptions(f *testing.F) {
	for _, s := range samples {
		f.Add(s.query, 1.0, 5.0)
	}
	f.Add("yMin=1e308&yMax=-1e308&logBase=1.0000001&width=30&height=30", -1e308, 1e308)
	f.Fuzz(func(t *testing.T, query string, a, b float64) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		o, err := ParseOptions(values.Get)
		if err != nil || o.Width*o.Height > 200_000 {
			return
		}
		list := []*render.Series{{Name: query, Start: start, Step: 7, Values: []float64{a, b, a, math.NaN(), a}},
			wave("b", 50, b, 1)}
		var out bytes.Buffer
		if err := PNG(t.Context(), io.Discard, list, o); err != nil {
			t.Error(err)
		}
		if err := SVG(t.Context(), &out, list, o); err != nil {
			t.Error(err)
		}
		checkXML(t, query, out.Bytes())
	})
}

func BenchmarkPNG(b *testing.B) {
	for _, n := range []int{1, 20} {
		b.Run(fmt.Sprintf("series=%d", n), func(b *testing.B) {
			o := DefaultOptions()
			o.Width, o.Height = 800, 400
			list := several(n)
			for b.Loop() {
				if err := PNG(b.Context(), io.Discard, list, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
