package filter_test

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func router() *resource.EntityConfig {
	return &resource.EntityConfig{
		Metadata:    resource.ObjectMeta{Name: "router-7", Namespace: "default", Labels: map[string]string{"site": "eu", "password": "x"}},
		EntityClass: "proxy", Subscriptions: []string{"network"},
	}
}

func TestEntityExpressions(t *testing.T) {
	t.Parallel()
	system := &resource.System{OS: "linux", Arch: "amd64", Network: resource.Network{Interfaces: []resource.NetworkInterface{{Name: "lo"}}}}
	f := func(expression string, system *resource.System, want bool) {
		t.Helper()
		x, err := filter.CompileEntity(pool(), filter.Definer{Kind: "check"}, expression)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := x.Matches(router(), system); got != want || err != nil {
				t.Errorf("%s: %v, %v", expression, got, err)
			}
		}
	}
	for _, expression := range []string{
		`entity.entity_class == "proxy"`, `entity.labels.site == "eu"`, `entity.metadata.labels["site"] == "eu"`, `entity.name == "router-7"`,
		`entity.metadata.name == entity.name`, `entity.subscriptions.indexOf("network") >= 0`, `entity.annotations && !entity.annotations.x`,
		`Object.keys(entity).indexOf("metadata") >= 0`, `let a = entity.namespace; a == "default"`,
	} {
		f(expression, nil, true)
		f("!("+`function () { return true }`+")() || "+`typeof entity.system == "undefined"`, nil, true)
	}
	f(`entity.system.os == "linux" && entity.system.arch == "amd64" && entity.system.network.interfaces[0].name == "lo"`, system, true)
	f(`entity.system.os == "windows"`, system, false)
	f(`entity.labels.site == "us"`, nil, false)
	f(`entity.labels.password == "x"`, nil, true) // its value is redacted
}

func TestEntityExpressionsThatFail(t *testing.T) {
	t.Parallel()
	if _, err := filter.CompileEntity(pool(), filter.Definer{Kind: "check"}, ")("); err == nil {
		t.Error("an expression that cannot be read is compiled")
	}
	for _, expression := range []string{`entity.system.os == "linux"`, `throw 1`, `while (true) {}`, `"x".repeat(1e9)`} {
		x, err := filter.CompileEntity(pool(), filter.Definer{Kind: "check"}, expression)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if got, err := x.Matches(router(), nil); got || err == nil {
			t.Errorf("%s: %v, %v", expression, got, err)
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s took %s", expression, took)
		}
	}
}

func BenchmarkEntityExpression(b *testing.B) {
	x, err := filter.CompileEntity(pool(), filter.Definer{Kind: "check"}, `entity.entity_class == "proxy" && entity.labels.site == "eu"`)
	if err != nil {
		b.Fatal(err)
	}
	cfg := router()
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := x.Matches(cfg, nil); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
