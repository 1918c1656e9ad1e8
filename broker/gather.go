package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

// Before a member opens its store it asks the others which cluster they belong to.
//
// A new cluster is made of members that belong to none. The server makes one as soon as it has heard of as many members
// as its options expect. They must not expect a majority: if two of three members lose their disks, the two would make
// a new cluster, and the third, with the last copy of everything, would join it and delete its copy. If they expect all
// members, the two do not. But then a new cluster of which one member is not there yet would never start. So a member
// first runs its server without a store, only to ask. It expects all members. If all members that answer belong to no
// cluster, and some have not answered for a while, it expects only the members that answer. A member that comes later
// with the store of another cluster refuses to start. The server does not change how many it expects until its cluster
// exists.

const (
	helloSubject = "lapwing.broker.hello"
	// helloPause is the pause between two questions. Members that open their stores at the same moment elect a leader at
	// once; otherwise the first election may fail, and the next one is up to 9 s later.
	helloPause = waitPoll
	// fullSetWait is how long a new cluster, and a new stream, wait for members that are missing.
	fullSetWait = 10 * time.Second
)

// hello is a member's answer about itself. Releases only add fields to it.
type hello struct {
	Name string `json:"name"`
	// Cluster is a mark of the cluster that the member's store belongs to, "" for an empty store.
	Cluster string `json:"cluster,omitempty"`
	// Brings is Cluster.Brings until the data is in the cluster.
	Brings string `json:"brings,omitempty"`
}

// hello returns what this member says.
func (b *Broker) hello() hello {
	b.mu.Lock()
	defer b.mu.Unlock()
	return hello{Name: b.opts.Name, Cluster: b.cluster, Brings: b.brings}
}

// gather waits until enough members answer to open the store. It returns the routes that the server should make.
func (b *Broker) gather(ctx context.Context) (routes []string, err error) {
	c := b.opts.Cluster
	if !strings.HasSuffix(c.ListenAddress, ":0") {
		if err := free(c.ListenAddress); err != nil {
			return nil, fmt.Errorf("start broker: %w", optionerr.Listen("--cluster-listen-address", c.ListenAddress, err))
		}
	}
	if c.TLS == nil {
		b.log.Warn("the members of the cluster talk to each other without TLS: every user of this host can join them",
			"address", c.ListenAddress)
	}
	own, err := b.clusterMark()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.cluster = own
	b.mu.Unlock()
	srv, err := b.boot(b.memberOptions(c.routes(c.Members)))
	if err != nil {
		return nil, err
	}
	conn, err := b.connect(srv, backendUser)
	if err != nil {
		end(srv, nil)
		return nil, err
	}
	defer end(srv, conn)
	asking := b.newAsking(conn)
	if err := asking.start(); err != nil {
		return nil, err
	}
	err = b.await(ctx, func() (string, error) {
		others, err := asking.heard()
		heard := 1 + len(others)
		if err != nil || heard <= c.Members/2 {
			return fmt.Sprintf("a majority of the cluster's members: heard of %d of %d", heard, c.Members), err
		}
		since, names := b.majoritySince(), []string{b.opts.Name}
		if err := b.mayJoin(own, others); err != nil {
			return "", err
		}
		established := own != ""
		for _, o := range others {
			established = established || o.Cluster != ""
			names = append(names, o.Name)
		}
		routes = c.routes(c.Members)
		if heard < c.Members && !established {
			if since < fullSetWait {
				return fmt.Sprintf("all members of the new cluster: heard of %d of %d", heard, c.Members), nil
			}
			routes = c.reachable(ctx).routes(heard)
			b.log.Warn("a new cluster is made without all its members", "members", c.Members, "heard_of", names)
		}
		return "", nil
	})
	return routes, err
}

// majoritySince returns how long ago a majority of the members had answered. The first call is when it has.
func (b *Broker) majoritySince() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gathered.IsZero() {
		b.gathered = time.Now()
	}
	return time.Since(b.gathered)
}

// routes returns the addresses of peers, as many as the server should expect members if it makes a new cluster: it
// counts them. A name with several addresses needs several routes anyway.
func (c *Cluster) routes(members int) []string {
	var all []string
	for i := range max(members, len(c.Peers)) {
		all = append(all, c.Peers[i%len(c.Peers)])
	}
	return all
}

// reachable returns the cluster with the peers that take connections now. The others make the routes when they come.
func (c *Cluster) reachable(ctx context.Context) *Cluster {
	only := *c
	only.Peers = nil
	dialer := net.Dialer{Timeout: time.Second}
	for _, address := range c.Peers {
		if conn, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			_ = conn.Close()
			only.Peers = append(only.Peers, address)
		}
	}
	if len(only.Peers) == 0 { // they have just gone
		return c
	}
	return &only
}

// mayJoin returns why a member with the cluster's mark own cannot belong to the same cluster as others that were heard.
func (b *Broker) mayJoin(own string, others map[string]hello) error {
	for _, name := range slices.Sorted(maps.Keys(others)) {
		o, brings := others[name], b.opts.Cluster.Brings != ""
		switch {
		case brings && o.Brings != "":
			return fmt.Errorf("members %s and %s both have the data of a backend that was alone, and one of them at most can "+
				"bring its data into the cluster: start the other one with an empty state directory", b.opts.Name, name)
		case brings && own == "" && o.Cluster != "":
			return fmt.Errorf("member %s says that the cluster has data already, and %s has the data of a backend that was "+
				"alone: empty the state directories of the others if that cluster was only just made; or start %[2]s alone, "+
				"without --peers; with an empty directory it would give its data up", name, b.opts.Name)
		case own != "" && !sameCluster(own, o.Cluster):
			return fmt.Errorf("%s belongs to another cluster than the members that run: "+
				"if it is not needed any more, start with an empty directory", b.opts.Dir)
		case o.Brings != "":
			b.expectData(name)
		}
	}
	return nil
}

// asking asks the other members which clusters they belong to, and answers them. A question says what an answer does, so
// of two members that must not join each other both learn it.
type asking struct {
	broker *Broker
	conn   *nats.Conn
	inbox  string

	mu     sync.Mutex // guards the fields below
	asked  time.Time
	others map[string]hello // by name
}

func (b *Broker) newAsking(conn *nats.Conn) *asking {
	return &asking{broker: b, conn: conn, inbox: conn.NewInbox(), others: map[string]hello{}}
}

// start starts to hear questions and answers.
func (a *asking) start() error {
	if _, err := a.conn.Subscribe(a.inbox, func(m *nats.Msg) { a.hear(m.Data) }); err != nil {
		return fmt.Errorf("ask the other members: %w", err)
	}
	return a.broker.answer(a.conn, a.hear)
}

func (a *asking) hear(text []byte) {
	var h hello
	if json.Unmarshal(text, &h) != nil || h.Name == "" || h.Name == a.broker.opts.Name {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others[h.Name] = h
}

// answer answers other members' questions over a connection. hear gets what the questions say.
func (b *Broker) answer(conn *nats.Conn, hear func(text []byte)) error {
	_, err := conn.Subscribe(helloSubject, func(m *nats.Msg) {
		hear(m.Data)
		if text, err := json.Marshal(b.hello()); err == nil {
			_ = m.Respond(text) // it is asked again
		}
	})
	if err != nil {
		return fmt.Errorf("answer the other members: %w", err)
	}
	return nil
}

// heard asks again now and then, and returns what the other members have said so far.
func (a *asking) heard() (map[string]hello, error) {
	text, err := json.Marshal(a.broker.hello())
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.asked) >= helloPause {
		a.asked = time.Now()
		if err := a.conn.PublishRequest(helloSubject, a.inbox, text); err != nil {
			return nil, fmt.Errorf("ask the other members: %w", err)
		}
	}
	return maps.Clone(a.others), nil
}

// A cluster's mark is the name of a stream and when that was made: "audit 1763880000000000000". All members get it from
// the cluster's leader. Two marks that name different streams cannot be compared.
func sameCluster(a, b string) bool {
	nameA, madeA, _ := strings.Cut(a, " ")
	nameB, madeB, _ := strings.Cut(b, " ")
	return nameA != nameB || madeA == madeB
}

func (b *Broker) markFile() string { return filepath.Join(b.opts.Dir, "cluster") }

// clusterMark returns the mark of the cluster that the store belongs to, "" if to none.
func (b *Broker) clusterMark() (string, error) {
	const most = 512
	text, err := plainfile.Read(b.markFile(), most)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the mark of the cluster: %w", err)
	}
	return string(text), nil
}

// noteCluster keeps the mark of the cluster, from the first stream that this member has opened.
func (b *Broker) noteCluster(stream string, made time.Time) error {
	if _, err := os.Stat(b.markFile()); err == nil {
		return nil
	}
	text := fmt.Sprintf("%s %d", stream, made.UnixNano())
	if err := blocks.WriteFile(b.markFile(), []byte(text)); err != nil {
		return fmt.Errorf("keep the mark of the cluster: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cluster = text
	return nil
}
