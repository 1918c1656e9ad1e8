package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

const (
	// MaxFile bounds a file of receivers, in bytes.
	MaxFile = 1 << 20
	// MaxReceivers bounds the receivers of a file. Each has a queue on disk and senders of its own.
	MaxReceivers = 50
)

// entry is one receiver of a file of receivers.
type entry struct {
	Name            string            `yaml:"name"`
	URL             string            `yaml:"url"`
	Username        string            `yaml:"username"`
	PasswordFile    string            `yaml:"password_file"`
	BearerTokenFile string            `yaml:"bearer_token_file"`
	Headers         map[string]string `yaml:"headers"`
	HeaderFiles     map[string]string `yaml:"header_files"`
	CAFile          string            `yaml:"ca_file"`
	CertFile        string            `yaml:"cert_file"`
	KeyFile         string            `yaml:"key_file"`
	Labels          map[string]string `yaml:"labels"`
	Match           string            `yaml:"match"`
	SanitizeNames   bool              `yaml:"sanitize_names"`
}

var (
	receiverName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$`)
	// quoted is the part of an error of the YAML library that repeats a value of the file, which may be a secret.
	quoted = regexp.MustCompile("(?s) ?`.*`")
)

// ReadReceivers reads a file of receivers: a YAML list of names, URLs and credentials. The Options that it returns have
// no Log, Registerer or Overflow.
func ReadReceivers(file string) ([]Options, error) {
	text, err := plainfile.Read(file, MaxFile)
	if err != nil {
		return nil, err
	}
	all, err := parseReceivers(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

func parseReceivers(text []byte) ([]Options, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var list []entry
	if err := decoder.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, withoutValues(err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document")
	}
	if len(list) == 0 {
		return nil, errors.New("there are no receivers")
	}
	if len(list) > MaxReceivers {
		return nil, fmt.Errorf("there are %d receivers: the limit is %d", len(list), MaxReceivers)
	}
	seen := map[string]bool{}
	var all []Options
	for i, r := range list {
		if !receiverName.MatchString(r.Name) {
			return nil, fmt.Errorf("receiver %d: name %.100q: use 1 to 64 letters, digits, _ and -, and none of these two first",
				i+1, r.Name)
		}
		if seen[r.Name] {
			return nil, fmt.Errorf("receiver %q is there twice", r.Name)
		}
		seen[r.Name] = true
		all = append(all, Options{
			Name: r.Name, URL: r.URL, Username: r.Username, PasswordFile: r.PasswordFile, BearerTokenFile: r.BearerTokenFile,
			Headers: r.Headers, HeaderFiles: r.HeaderFiles, CAFile: r.CAFile, CertFile: r.CertFile, KeyFile: r.KeyFile,
			Labels: r.Labels, Match: r.Match, Sanitize: r.SanitizeNames,
		})
	}
	return all, nil
}

// withoutValues returns an error of the YAML library without values of the file.
func withoutValues(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return err
	}
	var all []string
	for _, text := range wrong.Errors {
		text = quoted.ReplaceAllString(text, "")
		all = append(all, strings.ReplaceAll(text, " not found in type remote.entry", " is unknown"))
	}
	return errors.New(strings.Join(all, "; "))
}

// Check says why the options, or the files that they name, cannot be used. It opens no connection. Log may be missing.
func (o Options) Check() error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := o.fill(); err != nil {
		return err
	}
	if _, err := o.readAccess(); err != nil {
		return fmt.Errorf("remote write to %q: %s: %w", o.Name, accessFiles, err)
	}
	return nil
}
