package migrate

import (
	"context"
	"errors"

	"github.com/lapwing-monitoring/lapwing/client"
)

// server is a running Sensu or lapwing backend.
type server struct {
	name string
	c    *client.Client
}

// NewServer returns the source that a client is signed in to. It is only read.
func NewServer(name string, c *client.Client) Source { return &server{name, c} }

func (s *server) String() string { return s.name }

func (s *server) namespaces(ctx context.Context) ([]string, error) {
	var names []string
	err := listAll(ctx, s.c, namespaceKind, "", func(o *object) error {
		names = append(names, o.name)
		return nil
	})
	if errors.Is(err, errNoKind) {
		return nil, errors.New("there is no Sensu API at this address")
	}
	return names, err
}

func (s *server) each(ctx context.Context, k *kind, namespace string, f func(*object) error) error {
	return listAll(ctx, s.c, k, namespace, f)
}

func (s *server) remarks(*migration) {}
