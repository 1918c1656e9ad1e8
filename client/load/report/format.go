package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const absent = "–" // replaces a missing figure

// count writes a whole number with its thousands apart.
func count[T ~int | ~uint64](n T) string { return thousands(strconv.FormatInt(int64(n), 10)) }

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// number writes the first three digits, or all of a larger number before its point.
func number(v float64) string {
	a := math.Abs(v)
	places := 2
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return absent
	case a >= 99.95:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 9.995:
		places = 1
	case a < 0.0995:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', places, 64), "0"), ".")
}

// latency writes a time in seconds in the unit that suits it.
func latency(seconds float64) string {
	switch a := math.Abs(seconds); {
	case a == 0:
		return "0"
	case a < 0.9995e-3:
		return number(seconds*1e6) + " µs"
	case a < 0.9995:
		return number(seconds*1e3) + " ms"
	}
	return number(seconds) + " s"
}

var sizeUnits = []string{"B", "KiB", "MiB", "GiB"}

func size(bytes float64) string {
	i := 0
	for ; i < len(sizeUnits)-1 && math.Abs(bytes) >= 1000; i++ {
		bytes /= 1024
	}
	return number(bytes) + " " + sizeUnits[i]
}

// sizeBase is the unit that suits a number of bytes.
func sizeBase(bytes float64) float64 {
	base := 1.0
	for range len(sizeUnits) - 1 {
		if bytes < 1000*base {
			break
		}
		base *= 1024
	}
	return base
}

func cores(v float64) string  { return number(v) + " cores" }
func micros(v float64) string { return number(v) + " µs" }

// unit writes a number with its noun, whose plural ends in s.
func unit(v float64, plural string) string {
	if v == 1 {
		return "1 " + strings.TrimSuffix(plural, "s")
	}
	return number(v) + " " + plural
}

// span writes how long something took, to the second.
func span(seconds float64) string {
	s := int(math.Round(seconds))
	switch {
	case s < 60:
		return strings.TrimSuffix(strconv.FormatFloat(seconds, 'f', 1, 64), ".0") + " s"
	case s < 3600 && s%60 == 0:
		return fmt.Sprintf("%d min", s/60)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
	return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
}

// clock writes a time within a run.
func clock(seconds float64) string {
	sign, s := "", int(math.Round(seconds))
	if s < 0 {
		sign, s = "−", -s
	}
	if s >= 3600 {
		return fmt.Sprintf("%s%d:%02d:%02d", sign, s/3600, s%3600/60, s%60)
	}
	return fmt.Sprintf("%s%d:%02d", sign, s/60, s%60)
}

// maybe formats a figure that may be absent.
func maybe(v *float64, format func(float64) string) string {
	if v == nil {
		return absent
	}
	return format(*v)
}
