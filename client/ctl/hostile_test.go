package ctl

import (
	"errors"
	"strings"
	"testing"
)

// TestPlaceOfAStrangePath looks for fields that no document has: a server may name any.
func TestPlaceOfAStrangePath(t *testing.T) {
	documents, bad := splitDocuments("f.yaml", []byte("type: CheckConfig\nspec:\n  subdues:\n  - begin: x\n"))
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	for field, line := range map[string]int{
		"subdues[0].begin": 4, "subdues[-1].begin": 3, "subdues[7]": 3, "subdues[99999999999999999999]": 3, "[": 2, "": 1, "none.[-1]": 2,
	} {
		if got := lineOf(documents[0], field); got != line {
			t.Errorf("%q is at line %d, want %d", field, got, line)
		}
	}
}

func TestReportedErrorsCannotMoveTheTerminal(t *testing.T) {
	var out strings.Builder
	Report(&out, hint(errors.New("there is no event a\x1b[31m/\u202eabc"), "See \x1b]0;x\a\n\tlapwing event list"))
	if want := "Error: there is no event a?[31m/?abc\nSee ?]0;x?\n\tlapwing event list\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
