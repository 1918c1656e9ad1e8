// Package plot draws the series of a render request as a PNG or SVG image, in the manner of graphite-web. The HTTP API
// of metric/graphite calls it.
//
// It takes graphite-web's names for its options. It needs no fonts and no files of the system. The size of an image and
// the number of series in it are bounded; an image with too many series says how many it left out.
package plot

import (
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"
	"time"
)

// The bounds of an image.
const (
	MaxSide   = 4000
	MaxPixels = 8_000_000
	// MaxSeries is the number of series that are drawn.
	MaxSeries = 500
	minSide   = 20
	maxTitle  = 500
)

// LineMode is how the points of a series are joined.
type LineMode string

// The line modes of graphite-web.
const (
	Slope     LineMode = "slope"     // straight lines, with gaps where a value is missing
	Staircase LineMode = "staircase" // steps
	Connected LineMode = "connected" // straight lines across missing values
)

// AreaMode is which areas below the lines are filled.
type AreaMode string

// The area modes of graphite-web.
const (
	NoArea      AreaMode = "none"
	FirstArea   AreaMode = "first"
	AllAreas    AreaMode = "all"
	StackedArea AreaMode = "stacked"
)

// Options are how an image looks. DefaultOptions returns graphite-web's defaults.
type Options struct {
	Width, Height int // pixels
	Margin        int
	FontSize      float64
	Title         string
	VTitle        string
	VTitleRight   string
	LineMode      LineMode
	LineWidth     float64
	// ConnectedLimit is the number of missing values that Connected bridges. Below 0 is any number.
	ConnectedLimit int
	AreaMode       AreaMode
	// AreaAlpha is how opaque areas are, from 0 to 1. NaN lets the area mode decide.
	AreaAlpha float64
	// YMin to YMaxRight are the ends of the axes. NaN follows the values.
	YMin, YMax, YMinRight, YMaxRight float64
	// LogBase makes the axis logarithmic if it is above 1.
	LogBase float64
	// Binary makes the units of the axis powers of 1024.
	Binary bool
	// PlainUnits leaves the units of the axis out.
	PlainUnits             bool
	Colors                 []color.NRGBA
	Background, Foreground color.NRGBA
	// Legend says whether a legend is drawn. Without it, one is drawn for up to 10 series.
	Legend                                     *bool
	UniqueLegend                               bool
	HideAxes, HideXAxis, HideYAxis, HideGrid   bool
	GraphOnly, DrawNullAsZero, hideNullEntries bool
	// Location is the time zone of the times at the axis.
	Location *time.Location
}

// maxAutoLegend is the number of series up to which a legend is drawn unasked.
const maxAutoLegend = 10

// DefaultOptions returns the options of a request that names none.
func DefaultOptions() Options {
	nan := math.NaN()
	return Options{Width: 330, Height: 250, Margin: 10, FontSize: 10, LineMode: Slope, LineWidth: 1.2, ConnectedLimit: -1,
		AreaMode: NoArea, AreaAlpha: nan, YMin: nan, YMax: nan, YMinRight: nan, YMaxRight: nan, Colors: lightTheme.colors,
		Background: lightTheme.background, Foreground: lightTheme.foreground, Location: time.UTC}
}

// ParseOptions reads the options of a request. get returns the value of a parameter. As in graphite-web, an empty value
// and "default" leave an option at its default; options that are not known here have no effect.
func ParseOptions(get func(name string) string) (Options, error) {
	o := DefaultOptions()
	p := parser{get: get}
	if t, ok := themes[strings.ToLower(p.value("template"))]; ok {
		o.Colors, o.Background, o.Foreground = t.colors, t.background, t.foreground
	}
	p.side("width", &o.Width)
	p.side("height", &o.Height)
	if p.err == nil && o.Width*o.Height > MaxPixels {
		p.fail("width", "the image of %d × %d has more than %d pixels", o.Width, o.Height, MaxPixels)
	}
	p.whole("margin", &o.Margin, 0, minSide*100)
	p.number("fontSize", &o.FontSize, 4, 100)
	p.text("title", &o.Title)
	p.text("vtitle", &o.VTitle)
	p.text("vtitleRight", &o.VTitleRight)
	oneOf(&p, "lineMode", &o.LineMode, Slope, Staircase, Connected)
	oneOf(&p, "areaMode", &o.AreaMode, NoArea, FirstArea, AllAreas, StackedArea)
	p.number("lineWidth", &o.LineWidth, 0, 100)
	p.whole("connectedLimit", &o.ConnectedLimit, -1, math.MaxInt32)
	p.number("areaAlpha", &o.AreaAlpha, 0, 1)
	huge := math.MaxFloat64
	for _, name := range []string{"yMin", "yMinLeft"} {
		p.number(name, &o.YMin, -huge, huge)
	}
	for _, name := range []string{"yMax", "yMaxLeft"} {
		p.number(name, &o.YMax, -huge, huge)
	}
	p.number("yMinRight", &o.YMinRight, -huge, huge)
	p.number("yMaxRight", &o.YMaxRight, -huge, huge)
	if p.value("logBase") == "e" {
		o.LogBase = math.E
	} else {
		p.number("logBase", &o.LogBase, 0, 1e6)
	}
	switch unit := p.value("yUnitSystem"); unit {
	case "", "si":
	case "binary":
		o.Binary = true
	case "none", "sec", "msec":
		o.PlainUnits = true
	default:
		p.fail("yUnitSystem", "%q is none of si, binary, none", unit)
	}
	p.colors("colorList", &o.Colors)
	p.color("bgcolor", &o.Background)
	p.color("fgcolor", &o.Foreground)
	if p.value("hideLegend") != "" {
		var hide bool
		p.flag("hideLegend", &hide)
		show := !hide
		o.Legend = &show
	}
	for name, to := range map[string]*bool{"uniqueLegend": &o.UniqueLegend, "hideAxes": &o.HideAxes,
		"hideXAxis": &o.HideXAxis,
		"hideYAxis": &o.HideYAxis, "hideGrid": &o.HideGrid, "graphOnly": &o.GraphOnly, "drawNullAsZero": &o.DrawNullAsZero,
		"hideNullFromLegend": &o.hideNullEntries} {
		p.flag(name, to)
	}
	return o, p.err
}

// parser reads parameters and keeps the first error.
type parser struct {
	get func(string) string
	err error
}

func (p *parser) fail(name, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("parameter %s: %s", name, fmt.Sprintf(format, args...))
	}
}

// value returns a parameter, or the empty text if it asks for the default.
func (p *parser) value(name string) string {
	v := strings.TrimSpace(p.get(name))
	if strings.EqualFold(v, "default") {
		return ""
	}
	return v
}

func (p *parser) number(name string, to *float64, low, high float64) {
	v := p.value(name)
	if v == "" {
		return
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(n) || n < low || n > high {
		if high == math.MaxFloat64 {
			p.fail(name, "%q is no number", v)
		} else {
			p.fail(name, "%q is no number from %g to %g", v, low, high)
		}
		return
	}
	*to = n
}

func (p *parser) whole(name string, to *int, low, high float64) {
	n := float64(*to)
	p.number(name, &n, low, high)
	*to = int(n)
}

func (p *parser) side(name string, to *int) { p.whole(name, to, minSide, MaxSide) }

func (p *parser) text(name string, to *string) {
	v := p.get(name)
	if len(v) > maxTitle {
		p.fail(name, "the text is longer than %d bytes", maxTitle)
		return
	}
	*to = v
}

func (p *parser) flag(name string, to *bool) {
	switch v := strings.ToLower(p.value(name)); v {
	case "":
	case "true", "1", "yes", "on":
		*to = true
	case "false", "0", "no", "off":
		*to = false
	default:
		p.fail(name, "%q is neither true nor false", v)
	}
}

func oneOf[T ~string](p *parser, name string, to *T, values ...T) {
	v := T(strings.ToLower(p.value(name)))
	if v == "" {
		return
	}
	for _, known := range values {
		if v == known {
			*to = v
			return
		}
	}
	p.fail(name, "%q is none of %v", v, values)
}
