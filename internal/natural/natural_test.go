package natural

import (
	"slices"
	"testing"
)

func TestKey(t *testing.T) {
	got := []string{"web10", "6.12.0", "web9", "6.9.1", "", "6.9", "web"}
	slices.SortFunc(got, func(a, b string) int {
		if Key(a) < Key(b) {
			return -1
		}
		return 1
	})
	if want := []string{"", "6.9", "6.9.1", "6.12.0", "web", "web9", "web10"}; !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}
