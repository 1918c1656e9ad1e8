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
	if o.APIMaxConnections == 0 {
		o.APIMaxConnections = min(max(files/32, 128), 4096)
	}
	if o.AgentMaxConnections == 0 {
		o.AgentMaxConnections = max(files-own-o.APIMaxConnections, 64)
	}
	if o.APIMaxPerAddress == 0 {
		o.APIMaxPerAddress = max(o.APIMaxConnections/2, 1)
	}
	if o.AgentMaxPerAddress == 0 {
		o.AgentMaxPerAddress = max(o.AgentMaxConnections-o.AgentMaxConnections/8, 1)
	}
}
