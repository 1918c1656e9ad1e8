package asset

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// checksum checks a SHA-512 and returns it in the form for comparisons and file names.
func checksum(text string) (string, error) {
	sum := strings.ToLower(text)
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha512.Size {
		return "", errors.New("its checksum is no SHA-512")
	}
	return sum, nil
}

// request is the request to an archive's origin.
func request(ctx context.Context, b *resource.AssetBuild) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", resource.ShownURL(b.URL), withoutURL(err))
	}
	req.Header.Set("User-Agent", "lapwing")
	for name, value := range b.Headers {
		for v := range strings.SplitSeq(value, ",") {
			req.Header.Add(name, strings.TrimSpace(v))
		}
	}
	return req, nil
}

// statusError is an answer other than 200.
type statusError struct {
	url, status string
	code        int
	after       string // the Retry-After header
}

func (e *statusError) Error() string { return fmt.Sprintf("fetch %s: status %s", e.url, e.status) }

// withoutURL removes the URL from an error: it may hold a password, and results and logs show the error.
func withoutURL(err error) error {
	if with, ok := errors.AsType[*url.Error](err); ok {
		return with.Err
	}
	return err
}

// download writes the body of a response to w, at most limit bytes, and verifies its checksum.
func download(client *http.Client, req *http.Request, sum string, limit int64, w io.Writer) error {
	link := resource.ShownURL(req.URL.String())
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", link, withoutURL(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &statusError{link, resp.Status, resp.StatusCode, resp.Header.Get("Retry-After")}
	}
	hash := sha512.New()
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return fmt.Errorf("fetch %s: %w", link, err)
	}
	if n > limit {
		return fmt.Errorf("fetch %s: it has more than %d bytes", link, limit)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("fetch %s: its checksum is %s, not %s", link, got, sum)
	}
	return nil
}
