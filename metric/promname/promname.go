// Package promname turns the labels of a Prometheus series into the tagged name under which the series is stored, and
// back. The remote write receiver, remote write out, the rules and the PromQL view of the store all use it.
//
// The stored form is Graphite's canonical one: the metric name, then segments ";label=value" sorted as byte strings.
// Labels with an empty value are left out. The form cannot carry every text, so the package escapes a few bytes as %XX:
// a semicolon, space, a control byte, a "~" at the beginning of the name or of a value, and "!", "^" and "=" in the
// name of a label. A text that already looks like such an escape gets one more "25" behind its percent sign, and loses
// it on the way back; all other texts stay as they are, "50%" too. A label called "name" becomes the tag
// "exported_name", because Graphite keeps the metric name under the tag "name". Both ways are exact inverses for
// every valid set of labels, and for every canonical name without spaces and control bytes.
package promname

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

var (
	errNoName   = errors.New("the series has no label __name__")
	errTwoNames = errors.New("the label __name__ is there twice")
)

// Builder makes stored names. It keeps its buffers, so one Builder serves many series, one after the other. The zero
// Builder is ready.
type Builder struct {
	name     []byte
	segments []byte
	spans    []span
	twice    bool
}

type span struct{ start, split, end int }

// Reset begins a new series.
func (b *Builder) Reset() {
	b.name, b.segments, b.spans, b.twice = b.name[:0], b.segments[:0], b.spans[:0], false
}

// Add adds a label. It does not keep name or value.
func (b *Builder) Add(name, value []byte) {
	if len(value) == 0 {
		return
	}
	if string(name) == labels.MetricName {
		b.twice = b.twice || len(b.name) > 0
		b.name = appendEscaped(b.name[:0], value, inName)
		return
	}
	start := len(b.segments)
	b.segments = append(b.segments, ';')
	if isNameTag(name) {
		b.segments = append(b.segments, exported...)
	}
	b.segments = append(appendEscaped(b.segments, name, inTag), '=')
	split := len(b.segments)
	b.segments = appendEscaped(b.segments, value, inValue)
	b.spans = append(b.spans, span{start, split, len(b.segments)})
}

// Size returns the bytes of the name so far.
func (b *Builder) Size() int { return len(b.name) + len(b.segments) }

// Append appends the stored name of the labels added since Reset to dst. It fails if there is no metric name, or if a
// label was added twice.
func (b *Builder) Append(dst []byte) ([]byte, error) {
	if len(b.name) == 0 {
		return dst, errNoName
	}
	if b.twice {
		return dst, errTwoNames
	}
	dst = append(dst, b.name...)
	slices.SortFunc(b.spans, func(x, y span) int {
		return bytes.Compare(b.segments[x.start:x.end], b.segments[y.start:y.end])
	})
	for i, s := range b.spans {
		if i > 0 {
			// Equal tags are neighbours: "=" ends both, and no other tag can sort between them.
			p := b.spans[i-1]
			if bytes.Equal(b.segments[p.start:p.split], b.segments[s.start:s.split]) {
				return dst, fmt.Errorf("the label %q is there twice", b.segments[s.start+1:s.split-1])
			}
		}
		dst = append(dst, b.segments[s.start:s.end]...)
	}
	return dst, nil
}

// ToLabels returns the labels of a stored name, with the metric name as __name__. A name whose tags cannot be read is a
// metric name as a whole. Bytes that are not UTF-8 become U+FFFD, because Prometheus accepts nothing else.
func ToLabels(name string) labels.Labels {
	b := labels.NewScratchBuilder(8)
	appendLabels(name, func(name, value string) { b.Add(name, value) })
	b.Sort()
	ls := b.Labels()
	if _, twice := ls.HasDuplicateLabelNames(); twice {
		// Only a name that is not canonical has a tag twice, or both "name" and "exported_name". The last one counts.
		u := labels.NewBuilder(labels.EmptyLabels())
		ls.Range(func(l labels.Label) { u.Set(l.Name, l.Value) })
		return u.Labels()
	}
	return ls
}

// Each calls f with each label of a stored name: __name__ first, the others in the order of the name. See ToLabels.
func Each(name string, f func(name, value string)) { appendLabels(name, f) }

// EscapeValue returns value as it is in a stored name. A caller that looks for a label's value in the stored names
// needs it.
func EscapeValue(value string) string { return string(appendEscaped(nil, []byte(value), inValue)) }

// EscapeMetric returns a metric name as it is in a stored name.
func EscapeMetric(name string) string { return string(appendEscaped(nil, []byte(name), inName)) }

// Tag returns the tag that a label has in a stored name.
func Tag(label string) string {
	if isNameTag([]byte(label)) {
		label = exported + label
	}
	return string(appendEscaped(nil, []byte(label), inTag))
}
