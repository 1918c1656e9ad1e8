package duration

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1d": day, "2w": 14 * day, "1d12h": 36 * time.Hour,
		"1w2d3h4m5s": 9*day + 3*time.Hour + 4*time.Minute + 5*time.Second, "1.5d": 36 * time.Hour, "-1d": -day, "+5m": 5 * time.Minute,
		"-1d12h": -36 * time.Hour, "0d": 0,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-", "5", "d", "1x", "1d2w", "1d1d", "1d-5m", "1d+5m", "--5m", "-+5m", "1 d", "1.2.3d", "999999d", "15250w1h2562000h", "1d5",
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is accepted as %v", text, got)
		}
	}
}

func TestValue(t *testing.T) {
	var d time.Duration
	v := New(time.Hour, &d)
	if d != time.Hour || v.String() != "1h0m0s" {
		t.Errorf("the default is %v, as text %s", d, v)
	}
	if err := v.Set("2d"); err != nil || d != 48*time.Hour {
		t.Errorf("after 2d: %v, %v", d, err)
	}
	if err := v.Set("soon"); err == nil || d != 48*time.Hour {
		t.Errorf("after a mistake: %v, %v", d, err)
	}
}

// FuzzParse: Parse agrees with time.ParseDuration on all that Go accepts, and reads the text of a Value again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"1d12h", "2w", "1.5d", "-1w2d", "1h", "+5m", "0", "9e9d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(text)
		if want, goErr := time.ParseDuration(text); goErr == nil && want != -1<<63 && (err != nil || got != want) {
			t.Errorf("%q: got %v, %v; Go says %v", text, got, err, want)
		}
		if err != nil {
			return
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%q: %v is read as %v, %v", text, got, again, err)
		}
	})
}
