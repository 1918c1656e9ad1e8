package plot

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// legend is the list of names below the curves.
type legend struct {
	style   text.Style
	entries []entry
	// leftOut is how many series the legend or the image leaves out. A note below the entries says so.
	leftOut         int
	columns, rows   int
	columnWidth     vg.Length
	rowHeight       vg.Length
	left, top, room vg.Length
}

type entry struct {
	color color.NRGBA
	name  string
}

const (
	swatch    = 8 // pixels
	swatchGap = 5
	columnGap = 14
)

// legend collects the entries, of total series.
func (p *painter) legend(total int) *legend {
	l := &legend{style: p.style(p.o.FontSize, 0.9), rowHeight: vg.Length(p.o.FontSize * 1.5)}
	show := len(p.curves) <= maxAutoLegend
	if p.o.Legend != nil {
		show = *p.o.Legend
	}
	if p.o.GraphOnly || !show && total <= len(p.curves) {
		return l
	}
	l.leftOut = max(total-len(p.curves), 0)
	if !show {
		return l
	}
	seen := map[string]bool{}
	for i := range p.curves {
		c := &p.curves[i]
		if c.unnamed || p.o.UniqueLegend && seen[c.name] || p.o.hideNullEntries && c.empty {
			continue
		}
		seen[c.name] = true
		name := c.name
		if c.right {
			name += " (right)"
		}
		l.entries = append(l.entries, entry{c.color, name})
	}
	return l
}

// place arranges the entries at the bottom of r and returns the height that they take, at most two fifths of r.
func (l *legend) place(r vg.Rectangle) vg.Length {
	if len(l.entries) == 0 && l.leftOut == 0 {
		return 0
	}
	l.left, l.room = r.Min.X, r.Max.X-r.Min.X
	var widest vg.Length
	for i := range l.entries {
		l.entries[i].name = fit(l.style, l.entries[i].name, l.room-swatch-swatchGap)
		widest = max(widest, l.style.Width(l.entries[i].name))
	}
	l.columnWidth = min(widest+swatch+swatchGap+columnGap, l.room+columnGap)
	l.columns = max(int((l.room+columnGap)/max(l.columnWidth, 1)), 1)
	most := max(int((r.Max.Y-r.Min.Y)*2/5/l.rowHeight), 1)
	l.rows = (len(l.entries) + l.columns - 1) / l.columns
	if l.rows > most || l.leftOut > 0 {
		l.rows = min(l.rows, max(most-1, 0))
		shown := min(len(l.entries), l.rows*l.columns)
		l.leftOut += len(l.entries) - shown
		l.entries = l.entries[:shown]
		if l.leftOut > 0 {
			l.rows++ // for the note
		}
	}
	height := vg.Length(l.rows)*l.rowHeight + 6
	l.top = r.Min.Y + height - 6
	return height
}

func (p *painter) drawLegend(l *legend) {
	for i, e := range l.entries {
		x := l.left + vg.Length(i%l.columns)*l.columnWidth
		y := l.top - vg.Length(i/l.columns)*l.rowHeight - l.rowHeight/2
		square := vg.Rectangle{Min: vg.Point{X: crisp(x) - 0.5, Y: crisp(y-swatch/2) - 0.5}}
		square.Max = vg.Point{X: square.Min.X + swatch, Y: square.Min.Y + swatch}
		solid := e.color
		solid.A = 255
		fill(p.canvas, solid, square)
		style := l.style
		style.YAlign = text.YCenter
		p.text(style, vg.Point{X: x + swatch + swatchGap, Y: y}, e.name)
	}
	if l.leftOut > 0 && l.rows > 0 {
		style := l.style
		style.YAlign = text.YCenter
		y := l.top - vg.Length(l.rows-1)*l.rowHeight - l.rowHeight/2
		p.text(style, vg.Point{X: l.left, Y: y}, fit(style, fmt.Sprintf("… and %d more series", l.leftOut), l.room))
	}
}
