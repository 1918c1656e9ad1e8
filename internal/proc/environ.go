package proc

import (
	"os"
	"strings"
)

// Environ joins lists of NAME=value. A later value replaces an earlier one; for search paths (PATH, CPATH,
// LD_LIBRARY_PATH) it is put in front. Invalid entries are left out.
func Environ(lists ...[]string) []string {
	at := map[string]int{}
	env := []string{}
	for _, list := range lists {
		for _, entry := range list {
			name, value, ok := strings.Cut(entry, "=")
			if !ok || name == "" {
				continue
			}
			i, known := at[variable(name)]
			switch {
			case !known:
				at[variable(name)] = len(env)
				env = append(env, entry)
			case isSearchPath(name):
				_, old, _ := strings.Cut(env[i], "=")
				env[i] = name + "=" + joinPaths(value, old)
			default:
				env[i] = entry
			}
		}
	}
	return env
}

func isSearchPath(name string) bool {
	switch variable(name) {
	case "PATH", "CPATH", "LD_LIBRARY_PATH":
		return true
	}
	return false
}

// joinPaths puts a before b without an empty element, which would mean the working directory.
func joinPaths(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + string(os.PathListSeparator) + b
}
