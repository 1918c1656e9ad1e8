package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestLines: a document's line is the same whether its places are known or not.
func TestLines(t *testing.T) {
	for text, want := range map[string][]int{
		"a: 1\n---\n# one\n\nb: 2\n--- # two\nc: 3\n": {1, 5, 7},
		"\n{\"a\": 1}\n\n{\"b\":\n2} {\"c\": 3}\n":    {2, 4, 5},
		"--- {a: 1}\n--- {b: 2}\n":                    {1, 2},
		"\xef\xbb\xbf\n{a: 1}":                        {2},
	} {
		documents, wrong := Split("x", []byte(text))
		var lines, placed []int
		for _, d := range documents {
			lines, placed = append(lines, d.Line()), append(placed, d.At().Line)
		}
		if len(wrong) > 0 || !reflect.DeepEqual(lines, want) || !reflect.DeepEqual(placed, want) {
			t.Errorf("%q: lines %v, places %v, want %v; %v", text, lines, placed, want, wrong)
		}
	}
	if _, wrong := Split("x", []byte("a: 1\n---\nb: 2\nc: [\n")); len(wrong) != 1 || wrong[0].Line < 3 {
		t.Errorf("a part that is no YAML: %v", wrong)
	}
}

func TestUnknown(t *testing.T) {
	documents, _ := Split("x", []byte("spec:\n  command: c\n  subscriptons: [a]\n  Interval: 5\n  subdues:\n  - bgin: x\n"+
		"  metadata: {labels: {any: b}, lables: {}}\n"))
	var body map[string]any
	if err := json.Unmarshal(documents[0].JSON, &body); err != nil {
		t.Fatal(err)
	}
	var got []string
	w := &Walk{Unknown: func(steps []any, path string, known []string) {
		got = append(got, fmt.Sprintf("%d %s of %v", documents[0].At().Find(steps).Line, path, len(known) > 1))
	}}
	w.Value(reflect.TypeFor[resource.CheckConfig](), body["spec"], "", []any{"spec"})
	want := "7 metadata.lables of true; 6 subdues[0].bgin of true; 3 subscriptons of true"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got %s", text)
	}
}
