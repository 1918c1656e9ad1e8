package oncall

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Link is what a signed link lets its holder do: acknowledge one incident, as a contact, until a time.
type Link struct {
	Namespace string `json:"n"`
	Entity    string `json:"e"`
	Check     string `json:"k"`
	Contact   string `json:"c,omitempty"` // "" for a handler without a contact
	// LastOK is the check's last_ok in the incident (Unix seconds), and Made when the link was made (Unix milliseconds), so
	// that the link is not for a later incident. URL sets Made.
	LastOK int64 `json:"l"`
	Made   int64 `json:"m"`
	Until  int64 `json:"u"` // Unix seconds
}

const (
	// linkAge is how long a link is good.
	linkAge = 30 * 24 * time.Hour
	// maxToken bounds the length of a token that is read.
	maxToken = 8 << 10
	// linkTimeout bounds the wait for the key.
	linkTimeout = 5 * time.Second
)

// LinkPath is the path of links; a token follows.
const LinkPath = "/api/lapwing/v1/acknowledge/"

// ErrLink is the error of a link that is not signed by this cluster, or whose time is over.
var ErrLink = errors.New("the link is not valid, or not any more")

// Links makes and reads links. All members of a cluster read each other's.
type Links struct {
	base   string
	secret func(ctx context.Context) ([]byte, error)
	key    atomic.Pointer[[]byte]
}

// NewLinks makes a Links. base is the URL under which people reach the API, or "" for no links; secret returns the key.
func NewLinks(base string, secret func(context.Context) ([]byte, error)) *Links {
	return &Links{base: strings.TrimSuffix(base, "/"), secret: secret}
}

// URL returns a link, or "" if there are none.
func (l *Links) URL(to Link, now time.Time) (string, error) {
	if l.base == "" {
		return "", nil
	}
	to.Made, to.Until = now.UnixMilli(), cmp.Or(to.Until, now.Add(linkAge).Unix())
	body, err := json.Marshal(to)
	if err != nil {
		return "", fmt.Errorf("write link: %w", err)
	}
	sum, err := l.sign(body)
	if err != nil {
		return "", err
	}
	return l.base + LinkPath + url.PathEscape(encode(body)+"."+encode(sum)), nil
}

// Read returns what a token lets its holder do. Its error is ErrLink, or that the key cannot be read.
func (l *Links) Read(token string, now time.Time) (*Link, error) {
	first, second, ok := strings.Cut(token, ".")
	if !ok || len(token) > maxToken {
		return nil, ErrLink
	}
	body, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil {
		return nil, ErrLink
	}
	got, err := base64.RawURLEncoding.DecodeString(second)
	if err != nil {
		return nil, ErrLink
	}
	want, err := l.sign(body)
	if err != nil {
		return nil, err
	}
	var to Link
	if !hmac.Equal(got, want) || json.Unmarshal(body, &to) != nil || to.Until < now.Unix() {
		return nil, ErrLink
	}
	return &to, nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (l *Links) sign(body []byte) ([]byte, error) {
	key := l.key.Load()
	if key == nil {
		ctx, cancel := context.WithTimeout(context.Background(), linkTimeout)
		defer cancel()
		secret, err := l.secret(ctx)
		if err != nil {
			return nil, fmt.Errorf("get key of links: %w", err)
		}
		key = &secret
		l.key.Store(key)
	}
	mac := hmac.New(sha256.New, *key)
	mac.Write(body)
	return mac.Sum(nil), nil
}
