package send

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxFile is the size of the files that definitions may name.
const maxFile = 1 << 20

// readFile reads a file that a definition names. One that is no file, but a pipe, would hold the attempt for ever.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := os.Open(name)
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

// secret is what stands in the definition, or in the file that it names. The file is read each time, so that it may change;
// one that cannot be read may be on its way, so that is a temporary failure.
func secret(value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	b, err := readFile(file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// signIn adds what a web service wants to know. Influx's tokens have a scheme of their own.
func signIn(req *http.Request, a *resource.HandlerAuth, scheme string) error {
	if a.Username != "" {
		password, err := secret(a.Password, a.PasswordFile)
		if err != nil {
			return err
		}
		req.SetBasicAuth(a.Username, password)
		return nil
	}
	token, err := secret(a.Token, a.TokenFile)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", cmp.Or(scheme, "Bearer")+" "+token)
	}
	return nil
}
