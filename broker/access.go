package broker

import (
	"crypto/rand"
	"crypto/subtle"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// Users of the in-process connections to a member's server.
const (
	// backendUser uses the streams and the bus.
	backendUser = "backend"
	// systemUser changes who is a member of the cluster.
	systemUser = "system"
)

// access admits the connections of this process to a member's server, and no others. The server opens its listener for
// routes only if it also listens for clients. So it does, on a loopback address, where access refuses all: a client
// needs a secret that never leaves this process, and an in-process connection.
type access struct {
	secret string
	system atomic.Value // func() *server.Account, of the server
}

func newAccess() *access { return &access{secret: rand.Text()} }

// Check implements server.Authentication.
func (a *access) Check(c server.ClientAuthentication) bool {
	opts, from := c.GetOpts(), c.RemoteAddress()
	inProcess := from != nil && from.Network() == "pipe"
	if !inProcess || subtle.ConstantTimeCompare([]byte(opts.Password), []byte(a.secret)) != 1 {
		return false
	}
	switch opts.Username {
	case backendUser:
		return true
	case systemUser:
		system, ok := a.system.Load().(func() *server.Account)
		if !ok {
			return false
		}
		c.RegisterUser(&server.User{Username: systemUser, Account: system()})
		return true
	}
	return false
}
