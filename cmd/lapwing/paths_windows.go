package main

const (
	defaultAgentFile  = `C:\ProgramData\lapwing\config\agent.yml`
	sensuAgentFile    = `C:\ProgramData\sensu\config\agent.yml`
	defaultAgentCache = `C:\ProgramData\lapwing\cache\agent`
	defaultAgentLog   = `C:\ProgramData\lapwing\log\agent.log`
)
