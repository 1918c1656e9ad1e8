package spreadsheet

import (
	"slices"
	"testing"
)

func TestRow(t *testing.T) {
	got := Row([]string{"", "web1", "=HYPERLINK(1)", "+1", "-1", "@x", "\tx", "\rx", "a=b", "'x"})
	want := []string{"", "web1", "'=HYPERLINK(1)", "'+1", "'-1", "'@x", "'\tx", "'\rx", "a=b", "'x"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
