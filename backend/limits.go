package backend

// connectionLimits fills in how many connections the listeners take, from the number of files that the process may have
// open. A sixteenth of the files is for the backend itself (at least 256, at most 4096), a thirty-second for the API (at
// least 128, at most 4096), and the rest for agents. One address may have seven eighths of the agents' connections, for a
// whole fleet may be behind it, and half of the API's.
func (o *Options) connectionLimits(files int) {
	if files <= 0 {
		files = 65_536
	}
	own := min(max(files/16, 256), 4096)
	if o.APIConns.Max == 0 {
		o.APIConns.Max = min(max(files/32, 128), 4096)
	}
	if o.Session.MaxConnections == 0 {
		o.Session.MaxConnections = max(files-own-o.APIConns.Max, 64)
	}
	if o.APIConns.PerAddress == 0 {
		o.APIConns.PerAddress = max(o.APIConns.Max/2, 1)
	}
	if o.Session.MaxPerAddress == 0 {
		o.Session.MaxPerAddress = max(o.Session.MaxConnections-o.Session.MaxConnections/8, 1)
	}
}
