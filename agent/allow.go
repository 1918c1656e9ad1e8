package agent

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// allowList holds the commands that a host lets its backend run. An empty list allows all.
type allowList []allowed

// allowed is one entry: a program, and arguments that may follow it, in any order and number. The words of a command
// are compared literally and completely. Sensu's agents instead look for exec and args anywhere in the command, which
// lets other commands hide in it.
type allowed struct {
	Exec string   `json:"exec"`
	Args []string `json:"args"`
	// Sha512 is the required checksum of the program, in hexadecimal digits.
	Sha512 string `json:"sha512"`
	// EnableEnv passes the check's environment variables on.
	EnableEnv bool `json:"enable_env"`
}

var (
	errDenied     = errors.New("check command denied by the agent allow list")
	errHookDenied = errors.New("check hook command denied by the agent allow list")
)

// CheckAllowList returns why a file cannot be Options.AllowList.
func CheckAllowList(path string) error {
	_, err := readAllowList(path)
	return err
}

// readAllowList reads a list in YAML or JSON.
func readAllowList(path string) (allowList, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read allow list: %w", err)
	}
	var list allowList
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("read allow list %s: %w", path, err)
	}
	for i, a := range list {
		switch {
		case strings.TrimSpace(a.Exec) == "":
			return nil, fmt.Errorf("read allow list %s: entry %d has no exec", path, i+1)
		case a.Args == nil:
			return nil, fmt.Errorf(`read allow list %s: entry %d has no args; [""] is for none`, path, i+1)
		}
	}
	return list, nil
}

// find returns the first entry that allows a command for the given search path.
func (l allowList) find(command, path string) (*allowed, bool) {
	words := strings.Fields(command)
	for i := range l {
		if l[i].fits(words) && l[i].genuine(words[0], path) {
			return &l[i], true
		}
	}
	return nil, false
}

func (a *allowed) fits(words []string) bool {
	rest, ok := cutWords(words, strings.Fields(a.Exec))
	if !ok {
		return false
	}
	var args [][]string
	for _, arg := range a.Args {
		if w := strings.Fields(arg); len(w) > 0 {
			args = append(args, w)
		}
	}
	slices.SortFunc(args, func(a, b []string) int { return len(b) - len(a) }) // the longest first
	for len(rest) > 0 {
		i := slices.IndexFunc(args, func(arg []string) bool {
			_, ok := cutWords(rest, arg)
			return ok
		})
		if i < 0 {
			return false
		}
		rest = rest[len(args[i]):]
	}
	return true
}

func cutWords(words, prefix []string) ([]string, bool) {
	if len(words) < len(prefix) || !slices.Equal(words[:len(prefix)], prefix) {
		return nil, false
	}
	return words[len(prefix):], true
}

// genuine reports whether the program has the required checksum, if any.
func (a *allowed) genuine(program, path string) bool {
	if a.Sha512 == "" {
		return true
	}
	f, err := os.Open(lookUp(program, path))
	if err != nil {
		return false
	}
	defer f.Close()
	hash := sha512.New()
	if _, err := io.Copy(hash, f); err != nil {
		return false
	}
	want, err := hex.DecodeString(a.Sha512)
	return err == nil && bytes.Equal(hash.Sum(nil), want)
}

// lookUp finds a program as the shell does.
func lookUp(program, path string) string {
	if strings.ContainsRune(program, filepath.Separator) || strings.ContainsRune(program, '/') {
		return program
	}
	for _, dir := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return found
		}
	}
	return ""
}

// searchPath returns the PATH of an environment.
func searchPath(env []string) string {
	for _, v := range slices.Backward(env) {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			return path
		}
	}
	return ""
}
