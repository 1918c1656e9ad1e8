package main

// sensuAgentKeys are the keys of a sensu-agent 6.12 that our agent does not have. They are accepted with a warning, so
// that a host's old configuration file works as it is.
var sensuAgentKeys = map[string]string{
	"require-fips":           "run a binary that was built with make dist FIPS=1, or set GODEBUG=fips140=on",
	"require-openssl":        "run a binary that was built with make dist FIPS=1, or set GODEBUG=fips140=on",
	"exec":                   "define a check and use lapwing check execute",
	"args":                   "define a check and use lapwing check execute",
	"log-file":               "an option of lapwing agent service on Windows; on other systems the service manager keeps the log",
	"log-max-size":           "an option of lapwing agent service on Windows; on other systems the service manager keeps the log",
	"log-retention-files":    "an option of lapwing agent service on Windows; on other systems the service manager keeps the log",
	"log-retention-duration": "lapwing agent service on Windows keeps a number of files: use log-retention-files",
	"log-reaper-interval":    "lapwing agent service on Windows removes old files when it begins a new one",
}
