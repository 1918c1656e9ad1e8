package telemetry

import (
	"runtime/debug"
	"testing"
)

func TestVersionOf(t *testing.T) {
	f := func(want, linked string, bi *debug.BuildInfo) {
		t.Helper()
		if got := versionOf(linked, bi); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	build := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	f("v1.2.3", "v1.2.3", build("(devel)", commit))        // make build
	f("v1.4.0", "dev", build("v1.4.0"))                    // go install of a version
	f("dev-0123456789ab", "dev", build("(devel)", commit)) // go build
	f("dev-0123456789ab-dirty", "dev", build("", commit, changed))
	f("dev", "dev", build("(devel)")) // no commit is known
	f("dev", "", nil)
}
