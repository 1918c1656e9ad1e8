package ring

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Destination is a receiver of points: a carbon-cache, a relay or any other program that takes them.
type Destination struct {
	// Host is a name or an address. An IPv6 address has no brackets.
	Host string
	Port int
	// Instance tells receivers of one host apart. Empty is carbon's None.
	Instance string
}

// maxPart bounds the host and the instance, in bytes.
const maxPart = 255

// ParseDestination reads host:port[:instance] as in carbon's DESTINATIONS. An IPv6 address is in brackets.
func ParseDestination(text string) (Destination, error) {
	text = strings.TrimSpace(text)
	host, rest, ok := strings.Cut(text, ":")
	if strings.HasPrefix(text, "[") {
		if host, rest, ok = strings.Cut(text[1:], "]:"); ok && !strings.Contains(host, ":") {
			return Destination{}, fmt.Errorf("destination %.300q: only an IPv6 address is in brackets", text)
		}
	}
	if !ok {
		return Destination{}, fmt.Errorf("destination %.300q: write host:port or host:port:instance", text)
	}
	portText, instance, hasInstance := strings.Cut(rest, ":")
	if hasInstance && instance == "" {
		return Destination{}, fmt.Errorf("destination %.300q: the instance is empty", text)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return Destination{}, fmt.Errorf("destination %.300q: port %.50q is no number from 1 to 65535", text, portText)
	}
	d := Destination{Host: host, Port: int(port), Instance: instance}
	if err := d.check(); err != nil {
		return Destination{}, err
	}
	return d, nil
}

// ParseDestinations reads a list, divided by commas. Empty elements are ignored.
func ParseDestinations(text string) ([]Destination, error) {
	var all []Destination
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		d, err := ParseDestination(part)
		if err != nil {
			return nil, err
		}
		if all = append(all, d); len(all) > MaxDestinations {
			return nil, fmt.Errorf("more than %d destinations", MaxDestinations)
		}
	}
	return all, nil
}

// check refuses what cannot be dialled, and texts that Python would quote in another way than with apostrophes.
func (d Destination) check() error {
	if d.Port < 1 || d.Port > 65535 {
		return fmt.Errorf("destination %s: port %d is not from 1 to 65535", d, d.Port)
	}
	if d.Host == "" {
		return fmt.Errorf("destination %s: the host is empty", d)
	}
	for _, part := range []struct{ what, text string }{{"host", d.Host}, {"instance", d.Instance}} {
		if len(part.text) > maxPart {
			return fmt.Errorf("the %s of a destination has %d bytes: the limit is %d", part.what, len(part.text), maxPart)
		}
		for _, c := range []byte(part.text) {
			if c <= ' ' || c > '~' || strings.IndexByte(`'"\,`, c) >= 0 {
				return fmt.Errorf("destination %q: the %s may not contain %q", d.String(), part.what, rune(c))
			}
		}
	}
	return nil
}

// Address returns host:port for net.Dial.
func (d Destination) Address() string { return net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) }

// String returns the text that ParseDestination reads.
func (d Destination) String() string {
	if d.Instance == "" {
		return d.Address()
	}
	return d.Address() + ":" + d.Instance
}
