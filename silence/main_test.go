package silence

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put stores a silence of the default namespace under the name that follows from it.
func put(t testing.TB, s *config.Store, subscription, check string, change func(*resource.Silenced)) string {
	t.Helper()
	one := &resource.Silenced{Subscription: subscription, Check: check, Metadata: resource.ObjectMeta{Namespace: "default"}}
	if change != nil {
		change(one)
	}
	one.Metadata.Name = one.DerivedName()
	if err := config.Put(t.Context(), s, config.Silences, one); err != nil {
		t.Fatal(err)
	}
	return one.Metadata.Name
}
