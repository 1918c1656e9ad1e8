package ctl

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

func TestFailingText(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	waiting := func(name string, ago time.Duration) client.Waiting {
		return client.Waiting{Namespace: "default", Handler: name, FailingSince: now.Add(-ago).UnixMilli()}
	}
	f := func(want string, namespaces bool, list ...client.Waiting) {
		t.Helper()
		if got := failingText(list, namespaces, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f("", false)
	f("", false, client.Waiting{Handler: "well", Retrying: 1}, waiting("blip", 10*time.Second))
	f("alerts do not get through: handler hook has failed since 04:56 (see: lapwing handler waiting hook)", false,
		client.Waiting{Handler: "well"}, waiting("hook", 10*time.Minute))
	f("alerts do not get through: handler hook has failed since 2026-03-03 05:06 (see: lapwing handler waiting hook --namespace default)",
		true, waiting("hook", 24*time.Hour))
	f("alerts do not get through: 2 handlers fail, hook since 04:06 (see: lapwing handler waiting)", false,
		waiting("mail", time.Minute), waiting("hook", time.Hour))
}
