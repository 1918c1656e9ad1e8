package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/lapwing-monitoring/lapwing/client"
)

const defaultDirHelp = "$HOME/.config/lapwing"

// cluster is the file of that name: the API's address and the credentials. It has the format of sensuctl's file.
type cluster struct {
	APIURL        string `json:"api-url"`
	TrustedCAFile string `json:"trusted-ca-file"`
	Insecure      bool   `json:"insecure-skip-tls-verify"`
	CertFile      string `json:"cert-file,omitempty"`
	KeyFile       string `json:"key-file,omitempty"`
	client.Tokens
	APIKey  string        `json:"APIKey"`
	Timeout time.Duration `json:"timeout"` // nanoseconds
}

// profile is the file of that name: the user's preferences. It has the format of sensuctl's file.
type profile struct {
	Format    string `json:"format"`
	Namespace string `json:"namespace"`
}

// files are the two files and their directory. A missing file counts as empty.
type files struct {
	dir     string
	cluster cluster
	profile profile
}

// configDir returns the default directory of lapwing's own files.
func configDir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", hint(fmt.Errorf("find the client's files: %w", err), "Set HOME, or use --config-dir.")
	}
	return filepath.Join(home, ".config", "lapwing"), nil
}

// openFiles reads the files in dir. With an empty dir they are lapwing's own or, if there are none, sensuctl's: its
// users are already signed in. Renewed tokens are saved to the same place: otherwise sensuctl would keep tokens that no
// longer work.
func openFiles(dir string) (*files, error) {
	if dir != "" {
		return readFiles(dir)
	}
	own, err := configDir()
	if err != nil {
		return nil, err
	}
	sensu := filepath.Join(own, "..", "sensu", "sensuctl")
	if !holdsFiles(own) && holdsFiles(sensu) {
		return readFiles(sensu)
	}
	return readFiles(own)
}

func holdsFiles(dir string) bool {
	for _, name := range []string{"cluster", "profile"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

func readFiles(dir string) (*files, error) {
	f := &files{dir: dir}
	if err := readJSON(filepath.Join(dir, "cluster"), &f.cluster); err != nil {
		return nil, err
	}
	if err := readJSON(filepath.Join(dir, "profile"), &f.profile); err != nil {
		return nil, err
	}
	return f, nil
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the client's files: %w", err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return hint(fmt.Errorf("read %s: %w", path, err), "Remove the file and run 'lapwing configure'.")
	}
	return nil
}

// save writes both files.
func (f *files) save() error {
	if err := writeJSON(filepath.Join(f.dir, "cluster"), f.cluster); err != nil {
		return err
	}
	return writeJSON(filepath.Join(f.dir, "profile"), f.profile)
}

// saveTokens writes new tokens and leaves the rest of the cluster file unchanged.
func (f *files) saveTokens(t client.Tokens) error {
	path := filepath.Join(f.dir, "cluster")
	var now cluster
	if err := readJSON(path, &now); err != nil {
		return err
	}
	now.Tokens = t
	return writeJSON(path, now)
}

// lockTokens prevents other processes from renewing the same tokens until done is called, and returns the newest saved
// tokens. Without a lock, for example in a read-only directory, this process renews them anyway.
func (f *files) lockTokens() (newest client.Tokens, done func()) {
	done, err := lockedfile.MutexAt(filepath.Join(f.dir, "cluster.lock")).Lock()
	if err != nil {
		done = func() {}
	}
	var now cluster
	if err := readJSON(filepath.Join(f.dir, "cluster"), &now); err != nil {
		return client.Tokens{}, done
	}
	return now.Tokens, done
}

// writeJSON replaces a file as a whole, so readers never see half of it. Only the user may read it: it may have
// secrets.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp") // has mode 0600
	if err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("save %s: %w", path, err)
	}
	return nil
}
