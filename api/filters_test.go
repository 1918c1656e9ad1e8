package api

import (
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestExpressionsCannotExhaustTheStack: otherwise an expression could end the process.
func TestExpressionsCannotExhaustTheStack(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(256 << 20)) // a quarter of the default
	for _, level := range []string{"(", "[", "{", "!", "-", "a?", "new ", "a=", "()=>", "function(){", "`${", "a**", "(["} {
		e := strings.Repeat(level, filter.MaxExpression/len(level))
		if err := checkExpressions([]string{e}); err == nil {
			t.Errorf("%d times %q is accepted", len(e)/len(level), level)
		}
	}
	if err := checkExpressions([]string{"true", strings.Repeat(" ", filter.MaxExpression+1)}); err == nil ||
		err.Error() != "expression 1 is longer than 8192 bytes" {
		t.Errorf("a long expression: %v", err)
	}
}

func FuzzExpressions(f *testing.F) {
	for _, seed := range []string{"", "true", "event.check.status == 2", "(function(){return 1})()", "/a(/", "`${a}`",
		"{", "async () => await x", "\xff", "//"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, e string) { _ = checkExpressions([]string{e}) })
}

// TestWrongExpressionsAreToldUpToABound: reading further ones would only cost time.
func TestWrongExpressionsAreToldUpToABound(t *testing.T) {
	wrong := slices.Repeat([]string{"("}, 10_000)
	allocated := testing.AllocsPerRun(1, func() {
		if got := resource.Mistakes(checkExpressions(wrong)); len(got) != resource.MaxMistakes+1 {
			t.Errorf("%d mistakes", len(got))
		}
	})
	if most := 100_000.0; allocated > most {
		t.Errorf("%v allocations, want %v at most", allocated, most)
	}
}
