package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// sseLimit is the longest line, and the largest event, in bytes, that is read. Check events are a thousand times
// smaller.
const sseLimit = 64 << 20

var errEventTooLarge = errors.New("event in stream is too large")

var utf8BOM = []byte("\xef\xbb\xbf")

// sseReader reads server-sent events as the WHATWG's HTML standard defines them. Fields other than event, data and id
// are skipped.
type sseReader struct {
	r     *bufio.Reader
	limit int
	begun bool
	// A line may end with CR, LF or both. After CR the line is complete, and waiting for the next byte would delay the
	// event. So a LF there is skipped when it arrives.
	skipLF bool
	line   []byte
	name   []byte
	data   []byte

	nextID []byte // of the event that is being read
	// id is the position to ask for on a new connection. Events without data, which are not returned, can set it too.
	id string
}

func newSSEReader(r io.Reader) *sseReader {
	return &sseReader{r: bufio.NewReaderSize(r, 64<<10), limit: sseLimit}
}

// begin sets the position that counts until the stream sends one.
func (s *sseReader) begin(id string) { s.id, s.nextID = id, []byte(id) }

// next returns the next event. The next call overwrites the data. An event cut off by the end of the stream is dropped.
// The error is that of the stream, io.EOF at its regular end.
func (s *sseReader) next() (name string, data []byte, err error) {
	s.name, s.data = s.name[:0], s.data[:0]
	hasData := false
	for {
		line, err := s.readLine()
		if err != nil {
			return "", nil, err
		}
		if len(line) == 0 {
			if s.id != string(s.nextID) {
				s.id = string(s.nextID)
			}
			if !hasData {
				s.name = s.name[:0]
				continue
			}
			if len(s.name) == 0 {
				return "message", s.data[:len(s.data)-1], nil
			}
			return string(s.name), s.data[:len(s.data)-1], nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			s.name = append(s.name[:0], value...)
		case "id":
			if !bytes.ContainsRune(value, 0) {
				s.nextID = append(s.nextID[:0], value...)
			}
		case "data":
			if len(s.data)+len(value) >= s.limit {
				return "", nil, errEventTooLarge
			}
			hasData = true
			s.data = append(append(s.data, value...), '\n')
		}
	}
}

// readLine returns the next line without its end. The next call overwrites it.
func (s *sseReader) readLine() ([]byte, error) {
	s.line = s.line[:0]
	for {
		if _, err := s.r.Peek(1); err != nil {
			return nil, err
		}
		buf, _ := s.r.Peek(s.r.Buffered())
		if s.skipLF {
			s.skipLF = false
			if buf[0] == '\n' {
				s.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexByte(buf, '\n')
		if end < 0 {
			end = len(buf)
		}
		if cr := bytes.IndexByte(buf[:end], '\r'); cr >= 0 {
			end = cr
		}
		if len(s.line)+end > s.limit {
			return nil, errEventTooLarge
		}
		s.line = append(s.line, buf[:end]...)
		if end == len(buf) {
			s.r.Discard(end)
			continue
		}
		s.skipLF = buf[end] == '\r'
		s.r.Discard(end + 1)
		if !s.begun {
			s.begun = true
			return bytes.TrimPrefix(s.line, utf8BOM), nil
		}
		return s.line, nil
	}
}
