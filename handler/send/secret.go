package send

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxFile is the size of the files that definitions may name, in bytes.
const maxFile = 1 << 20

// readRegular reads a file that a definition names. It refuses other kinds: a pipe would block the attempt for ever.
func readRegular(stat func(string) (os.FileInfo, error), open func(string) (*os.File, error), name string) ([]byte, error) {
	info, err := stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return b, err
}

// secretFiles reads the secrets that definitions name, only from the operator's directories: an author of handlers
// chooses both the file and the server it is sent to.
type secretFiles []string

// errOutside is a mistake in the definition, so no further attempt can succeed.
var errOutside = errors.New("not in a directory of --handler-secret-dirs")

// read reads a file below one of the directories. It does not follow links that lead out of it.
func (dirs secretFiles) read(name string) ([]byte, error) {
	dir, rel, err := dirs.find(name)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readRegular(root.Stat, root.Open, rel)
}

// find splits a file's name into one of the directories and the rest.
func (dirs secretFiles) find(name string) (dir, rel string, err error) {
	for _, dir := range dirs {
		rel, err := filepath.Rel(dir, name)
		if err == nil && filepath.IsLocal(rel) && rel != "." {
			return dir, rel, nil
		}
	}
	return "", "", fmt.Errorf("%s is %w", name, errOutside)
}

// secret returns the text in the definition, or in the file that it names. The file is read each time, so that it may
// change.
func (dirs secretFiles) secret(value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	b, err := dirs.read(file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// unreadable is the failure of an attempt whose files could not be read. A missing file may still come.
func unreadable(err error) Result { return Result{Err: err, Temporary: !errors.Is(err, errOutside)} }

// signIn adds the credentials of a request. Influx's tokens have a scheme of their own.
func (dirs secretFiles) signIn(req *http.Request, a *resource.HandlerAuth, scheme string) error {
	if a.Username != "" {
		password, err := dirs.secret(a.Password, a.PasswordFile)
		if err != nil {
			return err
		}
		req.SetBasicAuth(a.Username, password)
		return nil
	}
	token, err := dirs.secret(a.Token, a.TokenFile)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", cmp.Or(scheme, "Bearer")+" "+token)
	}
	return nil
}
