package test

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// TestAgentsSubscribeAsTheyLike tests Sensu's behaviour, for operators who want it.
func TestAgentsSubscribeAsTheyLike(t *testing.T) {
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Intake.AnySubscription = true })
	if q := requestOfThief(t, b); q.Config.Metadata.Name != "for-victim" {
		t.Errorf("the agent is asked to run %s", q.Config.Metadata.Name)
	}
}
