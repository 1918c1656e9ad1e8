package backend

import "testing"

func TestConnectionLimits(t *testing.T) {
	for _, tc := range []struct{ files, agents, perAgentAddress, api, perAPIAddress int }{
		{1024, 640, 560, 128, 64},
		{20_000, 18_125, 15_860, 625, 312},
		{262_144, 253_952, 222_208, 4096, 2048},
		{0, 59_392, 51_968, 2048, 1024}, // not known
	} {
		var o Options
		o.connectionLimits(tc.files)
		if o.Session.MaxConnections != tc.agents || o.Session.MaxPerAddress != tc.perAgentAddress ||
			o.APIConns.Max != tc.api || o.APIConns.PerAddress != tc.perAPIAddress {
			t.Errorf("%d files: agents %d (%d), api %d (%d)",
				tc.files, o.Session.MaxConnections, o.Session.MaxPerAddress, o.APIConns.Max, o.APIConns.PerAddress)
		}
	}
}
