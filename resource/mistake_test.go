package resource

import (
	"fmt"
	"slices"
	"testing"
)

// TestMistakes: all broken rules of a definition, each with its field; the error's text is the first one's.
func TestMistakes(t *testing.T) {
	meta := ObjectMeta{Name: "n", Namespace: "default"}
	for _, c := range []struct {
		obj   interface{ Validate() error }
		first string
		want  []string
	}{
		{&CheckConfig{Metadata: meta, Cron: "61 * * * *", TTL: 3, Subscriptions: []string{"a", ""}, RuntimeAssets: []string{"x y"},
			Subdues: []TimeWindowRepeated{{}}, EnvVars: []string{"A=1", "B"}, LowFlapThreshold: 101},
			"check cron string is invalid: end of range (61) above maximum (59): 61",
			[]string{
				`cron: cron "61 * * * *": end of range (61) above maximum (59): 61`,
				"low_flap_threshold: check low_flap_threshold 101 is out of bounds, it must be between 0 and 100",
				"ttl: minimum ttl is 5 seconds",
				"runtime_assets[0]: asset's name may only contain letters, forward slashes, underscores, dashes and numbers",
				"subscriptions[1]: subscriptions cannot be empty strings",
				"env_vars[1]: environment variables must be of the form FOO=BAR",
				`subdues[0]: subdue 0 invalid: invalid begin time format: parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"`,
			}},
		{&CheckConfig{Metadata: meta}, "check interval must be greater than 0 or a valid cron schedule must be provided",
			[]string{"interval: it needs an interval greater than 0, or a cron schedule"}},
		{&Handler{Metadata: meta, Type: "fax", Timeout: 1 << 31}, "unknown handler type: fax", []string{"type: unknown handler type: fax",
			"timeout: handler timeout 2147483648 is out of bounds, it must be between 0 and 315360000"}},
		{&Handler{Metadata: meta, Type: "webhook", Webhook: &HandlerWebhook{URL: "http://x/", Body: "{{ .x "}},
			"webhook body is no valid template: template: webhook body:1: unclosed action",
			[]string{"webhook.body: webhook body is no valid template: template: webhook body:1: unclosed action"}},
		{&Asset{Metadata: meta, Builds: []*AssetBuild{{}}}, "SHA-512 checksum cannot be empty", []string{"builds[0].sha512: SHA-512 checksum cannot be empty"}},
		{&Namespace{Name: "a b"}, "namespace name cannot contain spaces or special characters",
			[]string{": namespace name cannot contain spaces or special characters"}},
	} {
		err := c.obj.Validate()
		if err == nil || err.Error() != c.first {
			t.Errorf("%T: %v, want %s", c.obj, err, c.first)
		}
		var got []string
		for _, m := range Mistakes(err) {
			got = append(got, fmt.Sprintf("%s: %s", m.Field, m.Text()))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%T:\n got %q\nwant %q", c.obj, got, c.want)
		}
	}
}

func TestMistakesAreBounded(t *testing.T) {
	c := CheckConfig{Metadata: ObjectMeta{Name: "n", Namespace: "default"}, Interval: 60, Subdues: make([]TimeWindowRepeated, 5000)}
	list := Mistakes(c.Validate())
	if len(list) != MaxMistakes+1 || list[MaxMistakes].Text() != "there are more mistakes from here on" || list[MaxMistakes].Field != "subdues[100]" {
		t.Errorf("%d mistakes, the last is %q", len(list), list[len(list)-1].Text())
	}
	twice := Mistakes(JoinMistakes(c.Validate(), c.Validate()))
	if len(twice) != MaxMistakes+1 {
		t.Errorf("%d mistakes of two lists", len(twice))
	}
}
