package plot

import (
	"context"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"sync"
	"unicode"
	"unicode/utf8"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/lapwing-monitoring/lapwing/metric/render"
)

// fonts parses the fonts at the first use, which takes some milliseconds.
var fonts = sync.OnceValue(func() *font.Cache { return font.NewCache(liberation.Collection()) })

// dpi makes a point, the unit of the drawing library, a pixel.
const dpi = 72

// PNG draws the series and writes the image.
func PNG(ctx context.Context, w io.Writer, list []*render.Series, o Options) error {
	c := vgimg.NewWith(vgimg.UseWH(vg.Length(o.Width), vg.Length(o.Height)), vgimg.UseDPI(dpi),
		vgimg.UseBackgroundColor(o.Background))
	if err := paint(ctx, draw.New(c), list, &o, true); err != nil {
		return err
	}
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(w, c.Image()); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

// SVG draws the series and writes the image. The names of the fonts are in it, not the fonts.
func SVG(ctx context.Context, w io.Writer, list []*render.Series, o Options) error {
	c := vgsvg.NewWith(vgsvg.UseWH(vg.Length(o.Width), vg.Length(o.Height)))
	canvas := draw.New(c)
	fill(canvas, o.Background, canvas.Rectangle)
	if err := paint(ctx, canvas, list, &o, false); err != nil {
		return err
	}
	if _, err := c.WriteTo(w); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

func fill(c draw.Canvas, col color.Color, r vg.Rectangle) {
	c.FillPolygon(col, []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}})
}

// painter draws one image.
type painter struct {
	canvas draw.Canvas
	o      *Options
	curves []curve
	// raster is set if letters are drawn as pixels.
	raster bool
	// from and until are the ends of the axis of time, leftAxis and rightAxis those of values.
	from, until         int64
	leftAxis, rightAxis scale
	hasRight            bool
	// area is where the curves are.
	area vg.Rectangle
}

func paint(ctx context.Context, canvas draw.Canvas, list []*render.Series, o *Options, raster bool) error {
	p := &painter{canvas: canvas, o: o, raster: raster, curves: curves(list, o.Width, o)}
	p.span()
	if len(p.curves) == 0 || p.until <= p.from {
		p.noData()
		return nil
	}
	legend := p.legend(len(list))
	p.layout(legend)
	p.grid()
	for _, areas := range []bool{true, false} {
		for i := range p.curves {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("draw the image: %w", err)
			}
			if areas {
				p.drawArea(&p.curves[i])
			} else {
				p.drawLine(&p.curves[i])
			}
		}
	}
	p.frame()
	p.drawLegend(legend)
	return nil
}

func (p *painter) span() {
	p.from, p.until = math.MaxInt64, math.MinInt64
	for i := range p.curves {
		c := &p.curves[i]
		if len(c.values) == 0 {
			continue
		}
		p.from = min(p.from, c.start)
		p.until = max(p.until, c.end)
	}
}

func (p *painter) noData() {
	style := p.style(p.o.FontSize*1.6, 1)
	style.XAlign, style.YAlign = text.XCenter, text.YCenter
	p.canvas.FillText(style, p.canvas.Center(), "No Data")
}

// style returns the style of a text, of the foreground's colour.
func (p *painter) style(size, alpha float64) text.Style {
	return text.Style{Color: faded(p.o.Foreground, alpha), Handler: text.Plain{Fonts: fonts()},
		XAlign: text.XLeft, YAlign: text.YBottom,
		Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)}}
}

// text draws a text. The library rounds the distances of pairs of letters that the font moves closer together, so that
// such pairs touch at the size of a label. Raster images therefore draw the letters of such pairs one after the other.
func (p *painter) text(style text.Style, at vg.Point, s string) {
	if !p.raster || style.Rotation != 0 {
		p.canvas.FillText(style, at, s)
		return
	}
	parts := p.unkerned(style, s)
	var width vg.Length
	for _, part := range parts {
		width += style.Width(part)
	}
	at.X += width * vg.Length(style.XAlign)
	style.XAlign = text.XLeft
	for _, part := range parts {
		p.canvas.FillText(style, at, part)
		at.X += style.Width(part)
	}
}

// unkerned splits a text between the letters that the font moves.
func (p *painter) unkerned(style text.Style, s string) []string {
	var parts []string
	runes := []rune(s)
	from := 0
	for i := 1; i < len(runes); i++ {
		pair := style.Width(string(runes[i-1 : i+1]))
		if pair != style.Width(string(runes[i-1]))+style.Width(string(runes[i])) {
			parts = append(parts, string(runes[from:i]))
			from = i
		}
	}
	return append(parts, string(runes[from:]))
}

// layout finds the place of the curves, between the title, the axes and the legend.
func (p *painter) layout(legend *legend) {
	o := p.o
	r := p.canvas.Rectangle
	size := vg.Length(o.FontSize)
	if !o.GraphOnly {
		margin := vg.Length(min(o.Margin, min(o.Width, o.Height)/5))
		r.Min.X, r.Min.Y, r.Max.X, r.Max.Y = r.Min.X+margin, r.Min.Y+margin, r.Max.X-margin, r.Max.Y-margin
		r.Max.Y -= p.title(r)
		r.Min.Y += legend.place(r)
		if p.xAxis() {
			r.Min.Y += size*1.5 + 2
		}
	}
	var lowRight, highRight float64
	for i := range p.curves {
		p.hasRight = p.hasRight || p.curves[i].right && !p.curves[i].infinite
	}
	rows := int((r.Max.Y - r.Min.Y) / (size * 2.6))
	low, high := extent(p.curves, false, o.LogBase > 1)
	p.leftAxis = newScale(low, high, o.YMin, o.YMax, min(rows, 10), o)
	if p.hasRight {
		lowRight, highRight = extent(p.curves, true, o.LogBase > 1)
		p.rightAxis = newScale(lowRight, highRight, o.YMinRight, o.YMaxRight, min(rows, 10), o)
	}
	if p.yAxis() {
		r.Min.X += p.labelWidth(p.leftAxis.ticks) + 6
		if p.hasRight {
			r.Max.X -= p.labelWidth(p.rightAxis.ticks) + 6
		}
		if !o.GraphOnly && o.VTitle != "" {
			p.sideTitle(o.VTitle, p.canvas.Min.X+vg.Length(o.Margin)/2, (r.Min.Y+r.Max.Y)/2, r.Max.Y-r.Min.Y, true)
			r.Min.X += size * 1.5
		}
		if !o.GraphOnly && o.VTitleRight != "" && p.hasRight {
			p.sideTitle(o.VTitleRight, p.canvas.Max.X-vg.Length(o.Margin)/2, (r.Min.Y+r.Max.Y)/2, r.Max.Y-r.Min.Y, false)
			r.Max.X -= size * 1.5
		}
	}
	// A very small image keeps some room for its curves.
	r.Max.X = max(r.Max.X, r.Min.X+4)
	r.Max.Y = max(r.Max.Y, r.Min.Y+4)
	p.area = r
}

func (p *painter) xAxis() bool { return !p.o.GraphOnly && !p.o.HideAxes && !p.o.HideXAxis }

func (p *painter) yAxis() bool { return !p.o.GraphOnly && !p.o.HideAxes && !p.o.HideYAxis }

// title draws the title and returns the height that it takes.
func (p *painter) title(r vg.Rectangle) vg.Length {
	if p.o.Title == "" {
		return 0
	}
	style := p.style(p.o.FontSize*1.3, 1)
	style.XAlign, style.YAlign = text.XCenter, text.YTop
	p.text(style, vg.Point{X: (r.Min.X + r.Max.X) / 2, Y: r.Max.Y}, fit(style, p.o.Title, r.Max.X-r.Min.X))
	return vg.Length(p.o.FontSize * 2.1)
}

func (p *painter) sideTitle(title string, x, y, room vg.Length, left bool) {
	style := p.style(p.o.FontSize, 0.85)
	style.XAlign, style.Rotation = text.XCenter, math.Pi/2
	style.YAlign = text.YTop
	if !left {
		style.Rotation = -math.Pi / 2
	}
	p.canvas.FillText(style, vg.Point{X: x, Y: y}, fit(style, title, room))
}

func (p *painter) labelWidth(ticks []tick) vg.Length {
	style := p.style(p.o.FontSize, 1)
	var width vg.Length
	for _, t := range ticks {
		width = max(width, style.Width(t.label))
	}
	return width
}

func (p *painter) x(at float64) vg.Length {
	return p.area.Min.X + vg.Length((at-float64(p.from))/float64(p.until-p.from))*(p.area.Max.X-p.area.Min.X)
}

func (p *painter) y(s *scale, v float64) vg.Length {
	// Values far off the axis are kept near it, because the library draws with 26 bits.
	place := min(max(s.place(v), -1000), 1000)
	return p.area.Min.Y + vg.Length(place)*(p.area.Max.Y-p.area.Min.Y)
}

// crisp moves a line of one pixel to the middle of a pixel.
func crisp(v vg.Length) vg.Length { return vg.Length(math.Floor(float64(v))) + 0.5 }

// grid draws the grid and the labels of the axes.
func (p *painter) grid() {
	o := p.o
	line := draw.LineStyle{Color: faded(o.Foreground, 0.13), Width: 1}
	label := p.style(o.FontSize, 0.85)
	a := p.area
	showGrid := !o.HideGrid && !o.GraphOnly
	for _, t := range p.leftAxis.ticks {
		y := crisp(p.y(&p.leftAxis, t.at))
		if y < a.Min.Y-1 || y > a.Max.Y+1 {
			continue
		}
		if showGrid {
			p.canvas.StrokeLine2(line, a.Min.X, y, a.Max.X, y)
		}
		if p.yAxis() {
			label.XAlign, label.YAlign = text.XRight, text.YCenter
			p.text(label, vg.Point{X: a.Min.X - 6, Y: y}, t.label)
		}
	}
	if p.hasRight && p.yAxis() {
		label.XAlign, label.YAlign = text.XLeft, text.YCenter
		for _, t := range p.rightAxis.ticks {
			p.text(label, vg.Point{X: a.Max.X + 6, Y: p.y(&p.rightAxis, t.at)}, t.label)
		}
	}
	label.XAlign, label.YAlign = text.XCenter, text.YTop
	width := func(s string) float64 { return float64(label.Width(s)) }
	for _, t := range timeTicks(p.from, p.until, o.Location, float64(a.Max.X-a.Min.X), width) {
		x := p.x(t.at)
		if showGrid {
			p.canvas.StrokeLine2(line, crisp(x), a.Min.Y, crisp(x), a.Max.Y)
		}
		half := label.Width(t.label) / 2
		if p.xAxis() && x-half >= p.canvas.Min.X && x+half <= p.canvas.Max.X {
			p.text(label, vg.Point{X: x, Y: a.Min.Y - 4}, t.label)
		}
	}
}

// frame draws the axes themselves, over the areas.
func (p *painter) frame() {
	if p.o.GraphOnly || p.o.HideAxes {
		return
	}
	line := draw.LineStyle{Color: faded(p.o.Foreground, 0.45), Width: 1}
	a := p.area
	if p.xAxis() {
		p.canvas.StrokeLine2(line, a.Min.X, crisp(a.Min.Y), a.Max.X, crisp(a.Min.Y))
	}
	if p.yAxis() {
		p.canvas.StrokeLine2(line, crisp(a.Min.X), a.Min.Y, crisp(a.Min.X), a.Max.Y)
		if p.hasRight {
			p.canvas.StrokeLine2(line, crisp(a.Max.X), a.Min.Y, crisp(a.Max.X), a.Max.Y)
		}
	}
}

func (p *painter) scaleOf(c *curve) *scale {
	if c.right {
		return &p.rightAxis
	}
	return &p.leftAxis
}

// runs calls f with each range of indexes [i, k) without a gap.
func (p *painter) runs(c *curve, s *scale, f func(i, k int)) {
	drawn := func(i int) bool { return !math.IsNaN(s.place(c.values[i])) }
	for i := 0; i < len(c.values); i++ {
		if !drawn(i) {
			continue
		}
		k := i + 1
		for k < len(c.values) && drawn(k) {
			k++
		}
		f(i, k)
		i = k
	}
}

// outline returns the line through values[i:k]. c has their times.
func (p *painter) outline(c *curve, s *scale, values []float64, i, k int) []vg.Point {
	points := make([]vg.Point, 0, 2*(k-i))
	for ; i < k; i++ {
		at := float64(c.start + int64(i)*c.step)
		v := values[i]
		if math.IsNaN(s.place(v)) {
			v = s.low
		}
		y := p.y(s, v)
		points = append(points, vg.Point{X: p.x(at), Y: y})
		if p.o.LineMode == Staircase {
			points = append(points, vg.Point{X: p.x(at + float64(c.step)), Y: y})
		}
	}
	return points
}

func (p *painter) drawArea(c *curve) {
	if c.area <= 0 || c.hidden {
		return
	}
	s := p.scaleOf(c)
	inside := draw.Canvas{Canvas: p.canvas.Canvas, Rectangle: p.area}
	p.runs(c, s, func(i, k int) {
		points := p.outline(c, s, c.values, i, k)
		if c.base == nil {
			floor := s.low
			if s.log == 0 {
				floor = min(max(0, s.low), s.high)
			}
			y := p.y(s, floor)
			points = append(points, vg.Point{X: points[len(points)-1].X, Y: y}, vg.Point{X: points[0].X, Y: y})
		} else {
			base := make([]float64, len(c.base))
			for n, v := range c.base {
				if math.IsNaN(v) {
					v = 0
				}
				base[n] = v
			}
			below := p.outline(c, s, base, i, k)
			for n := len(below) - 1; n >= 0; n-- {
				points = append(points, below[n])
			}
		}
		if points = inside.ClipPolygonY(points); len(points) > 2 {
			inside.FillPolygon(faded(c.color, c.area), points)
		}
	})
}

func (p *painter) drawLine(c *curve) {
	if c.hidden {
		return
	}
	style := draw.LineStyle{Color: c.color, Width: vg.Length(c.width)}
	if c.dash > 0 {
		style.Dashes = []vg.Length{vg.Length(min(c.dash, 1000)), vg.Length(min(c.dash, 1000))}
	}
	inside := draw.Canvas{Canvas: p.canvas.Canvas, Rectangle: p.area}
	if c.infinite {
		for i, v := range c.values {
			if v > 0 {
				x := p.x(float64(c.start + int64(i)*c.step))
				inside.StrokeLine2(style, x, p.area.Min.Y, x, p.area.Max.Y)
			}
		}
		return
	}
	if c.width == 0 {
		return
	}
	s := p.scaleOf(c)
	var lines [][]vg.Point
	last := -1 // the index behind the run before
	p.runs(c, s, func(i, k int) {
		points := p.outline(c, s, c.values, i, k)
		if len(points) == 1 { // a value between gaps is a dot
			x, y := points[0].X, points[0].Y
			half := max(style.Width/2, 1)
			points = []vg.Point{{X: x - half, Y: y}, {X: x + half, Y: y}}
		}
		bridge := p.o.LineMode == Connected && last >= 0 && (p.o.ConnectedLimit < 0 || i-last <= p.o.ConnectedLimit)
		if bridge {
			lines[len(lines)-1] = append(lines[len(lines)-1], points...)
		} else {
			lines = append(lines, points)
		}
		last = k
	})
	for _, line := range inside.ClipLinesXY(lines...) {
		inside.StrokeLines(style, line)
	}
}

// cleaned replaces characters that XML cannot have.
func cleaned(s string) string {
	b := make([]rune, 0, len(s))
	for _, r := range s {
		switch {
		case r == utf8.RuneError || unicode.IsControl(r) || r == 0xfffe || r == 0xffff:
			b = append(b, ' ')
		default:
			b = append(b, r)
		}
	}
	return string(b)
}

// maxText bounds the characters of a text that is measured.
const maxText = 1000

// fit shortens a text to the room that it has.
func fit(style text.Style, s string, room vg.Length) string {
	runes := []rune(cleaned(s))
	if len(runes) > maxText {
		runes = runes[:maxText]
	}
	if style.Width(string(runes)) <= room {
		return string(runes)
	}
	low, high := 0, len(runes)
	for low < high {
		half := (low + high + 1) / 2
		if style.Width(string(runes[:half])+"…") <= room {
			low = half
		} else {
			high = half - 1
		}
	}
	if low == 0 {
		return ""
	}
	return string(runes[:low]) + "…"
}
