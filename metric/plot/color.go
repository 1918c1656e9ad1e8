package plot

import (
	"image/color"
	"strconv"
	"strings"
)

// theme is a template of graphite-web: the colours of an image.
type theme struct {
	background, foreground color.NRGBA
	colors                 []color.NRGBA
}

func rgb(n uint32) color.NRGBA {
	return color.NRGBA{R: uint8(n >> 16), G: uint8(n >> 8), B: uint8(n), A: 255}
}

func rgbs(list ...uint32) []color.NRGBA {
	colors := make([]color.NRGBA, len(list))
	for i, n := range list {
		colors[i] = rgb(n)
	}
	return colors
}

// The palettes have hues that people with a red-green weakness can tell apart, side by side in the order of use.
var (
	lightTheme = theme{background: rgb(0xffffff), foreground: rgb(0x2b2f36), colors: rgbs(0x2f6fb7, 0xd9822b, 0x3a9a6a,
		0xb8436b, 0x6f5cb5, 0x1c9bb0, 0x8a6d3b, 0xc0a415, 0x5b6b7b, 0xa3478f, 0x6a9a2d, 0xc9514a)}
	darkTheme = theme{background: rgb(0x16181d), foreground: rgb(0xd5d9e0), colors: rgbs(0x6ba6e8, 0xf0a850, 0x5fc795,
		0xe8789e, 0xa396ea, 0x4fc7dc, 0xc4a368, 0xe2cc4e, 0x9aa9b8, 0xd681c4, 0x9fcf5f, 0xf0827a)}
	themes = map[string]theme{"plain": lightTheme, "light": lightTheme, "dark": darkTheme, "noc": darkTheme}
)

// colorNames are those of graphite-web.
var colorNames = map[string]color.NRGBA{
	"black": rgb(0x000000), "white": rgb(0xffffff), "blue": rgb(0x6464ff), "green": rgb(0x00c800), "red": rgb(0xc80032),
	"yellow": rgb(0xffff00), "orange": rgb(0xffa500), "purple": rgb(0xc864ff), "brown": rgb(0x966432),
	"cyan": rgb(0x00ffff), "aqua": rgb(0x009696), "gray": rgb(0xafafaf), "grey": rgb(0xafafaf), "magenta": rgb(0xff00ff),
	"pink": rgb(0xff6464), "gold": rgb(0xc8c800), "rose": rgb(0xc896c8), "darkblue": rgb(0x0000ff),
	"darkgreen": rgb(0x00ff00),
	"darkred":   rgb(0xff0000), "darkgray": rgb(0x6f6f6f), "darkgrey": rgb(0x6f6f6f),
}

// parseColor reads a name of graphite-web, or three, six or eight hexadecimal digits with or without a #. The last two
// of eight digits are the opacity.
func parseColor(s string) (color.NRGBA, bool) {
	s = strings.ToLower(strings.TrimSpace(s))
	if c, ok := colorNames[s]; ok {
		return c, true
	}
	hex := strings.TrimPrefix(s, "#")
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		return color.NRGBA{}, false
	}
	switch len(hex) {
	case 3:
		r, g, b := uint8(n>>8&15), uint8(n>>4&15), uint8(n&15)
		return color.NRGBA{R: r * 17, G: g * 17, B: b * 17, A: 255}, true
	case 6:
		return rgb(uint32(n)), true
	case 8:
		c := rgb(uint32(n >> 8))
		c.A = uint8(n)
		return c, true
	}
	return color.NRGBA{}, false
}

func (p *parser) color(name string, to *color.NRGBA) {
	v := p.value(name)
	if v == "" {
		return
	}
	c, ok := parseColor(v)
	if !ok {
		p.fail(name, "%q is no colour", v)
		return
	}
	*to = c
}

// maxColors bounds a list of colours.
const maxColors = 100

func (p *parser) colors(name string, to *[]color.NRGBA) {
	v := strings.Trim(p.value(name), `"'`)
	if v == "" {
		return
	}
	var list []color.NRGBA
	for part := range strings.SplitSeq(v, ",") {
		c, ok := parseColor(part)
		if !ok {
			p.fail(name, "%q is no colour", part)
			return
		}
		if list = append(list, c); len(list) > maxColors {
			p.fail(name, "there are more than %d colours", maxColors)
			return
		}
	}
	*to = list
}

// faded returns c with its opacity multiplied by alpha.
func faded(c color.NRGBA, alpha float64) color.NRGBA {
	c.A = uint8(float64(c.A)*min(max(alpha, 0), 1) + 0.5)
	return c
}
