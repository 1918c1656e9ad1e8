package graphite

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/render"
)

// maxParams bounds the parameters of a request.
const maxParams = 10_000

// params are the parameters of a request: those of the query string, then those of the form in its body.
type params map[string][]string

// get returns the last value of name, or the empty text.
func (p params) get(name string) string {
	if values := p[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

func (p params) has(name string) bool { return len(p[name]) > 0 }

// list returns the values of name, or else of name[], which libraries for PHP, Rails and jQuery send.
func (p params) list(name string) []string {
	if values := p[name]; len(values) > 0 {
		return values
	}
	return p[name+"[]"]
}

// set reports whether a switch is on: graphite-web reads these as numbers, and zero is off.
func (p params) set(name string) (bool, error) {
	n, err := p.int(name, 0)
	return n != 0, err
}

func (p params) int(name string, otherwise int) (int, error) {
	if !p.has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(p.get(name)))
	if err != nil {
		return 0, badRequest("parameter %s: %q is no whole number", name, p.get(name))
	}
	return n, nil
}

// limit reads a parameter that bounds the number of results. It must not be negative.
func (p params) limit(otherwise int) (int, error) {
	n, err := p.int("limit", otherwise)
	if err == nil && n < 0 {
		err = badRequest("parameter limit: %d is below 0", n)
	}
	return n, err
}

// readForm adds the form in the body of a POST, of at most maxBytes.
func (p params) readForm(w http.ResponseWriter, r *http.Request, maxBytes int64) error {
	if r.Method != http.MethodPost || r.Body == nil {
		return nil
	}
	kind, attrs, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil // as graphite-web: a body of another kind is no form
	}
	body := http.MaxBytesReader(w, r.Body, maxBytes)
	switch kind {
	case "application/x-www-form-urlencoded":
		text, err := io.ReadAll(body)
		if err != nil {
			return bodyError(err)
		}
		return p.parse(string(text))
	case "multipart/form-data":
		return p.multipart(multipart.NewReader(body, attrs["boundary"]))
	}
	return nil
}

func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &StatusError{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the body of the request is larger than %d bytes", tooLarge.Limit)}
	}
	return badRequest("cannot read the body of the request: %v", err)
}

func (p params) multipart(parts *multipart.Reader) error {
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		if n >= maxParams {
			return badRequest("the request has more than %d parameters", maxParams)
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return bodyError(err)
		}
		if name := part.FormName(); name != "" && part.FileName() == "" {
			name = strings.ToValidUTF8(name, "\ufffd")
			p[name] = append(p[name], strings.ToValidUTF8(string(value), "\ufffd"))
		}
	}
}

// parse adds the parameters of an encoded query. net/url is stricter than the programs that call this API: it refuses a
// bare semicolon, which separates tags in a series' name, and a percent sign without two digits.
func (p params) parse(query string) error {
	if strings.Count(query, "&") >= maxParams {
		return badRequest("the request has more than %d parameters", maxParams)
	}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if part == "" {
			continue
		}
		name = unescape(name)
		p[name] = append(p[name], unescape(value))
	}
	return nil
}

// unescape decodes plus signs and percent escapes. An escape without two hexadecimal digits stays as it is.
func unescape(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return strings.ToValidUTF8(s, "\ufffd")
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '+':
			b = append(b, ' ')
		case s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			b = append(b, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		default:
			b = append(b, s[i])
		}
	}
	return strings.ToValidUTF8(string(b), "\ufffd")
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// location returns the time zone of the parameter tz. As in graphite-web, an unknown one is the default.
func (p params) location(otherwise *time.Location) *time.Location {
	name := p.get("tz")
	if name == "" || name == "Local" {
		return otherwise
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return otherwise
	}
	return loc
}

// span is the range of time that a request asks for.
type span struct {
	from, until, now time.Time
	loc              *time.Location
}

// readSpan reads tz, now, from and until. Without from the range begins that long before now, or in 1970 if back is 0.
func (a *API) readSpan(p params, back time.Duration) (span, error) {
	s := span{loc: p.location(a.opts.Location)}
	s.now = a.opts.Now().In(s.loc)
	var err error
	if s.now, err = a.readTime(p, "now", s.now, s); err != nil {
		return s, err
	}
	from := time.Unix(0, 0)
	if back > 0 {
		from = s.now.Add(-back)
	}
	if s.from, err = a.readTime(p, "from", from, s); err != nil {
		return s, err
	}
	s.until, err = a.readTime(p, "until", s.now, s)
	return s, err
}

func (a *API) readTime(p params, name string, otherwise time.Time, s span) (time.Time, error) {
	if !p.has(name) {
		return otherwise, nil
	}
	at, err := render.ParseTime(p.get(name), s.now, s.loc)
	if err != nil {
		return at, badRequest("parameter %s: %v", name, err)
	}
	return at, nil
}
