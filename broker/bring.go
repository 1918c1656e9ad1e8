package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// This file has one member bring data into a new cluster: that of a backend that was alone, or of a backup.
//
// The member says in its hello that it brings data. The others then make no streams. It makes them itself and fills
// them (see Filler). The metadata of each stream has the id of the data, and once all streams are filled it has the id
// once more. Until then no other member opens the stream, however often members are started again in the meantime. So
// there is one order in which the cluster knows its data: first all that was brought, then what the members write.

const (
	// bringingKey and broughtKey have the id of data that is brought, and that was brought, in a stream's metadata.
	bringingKey = "lapwing.io/bringing"
	broughtKey  = "lapwing.io/brought"
)

// expectData notes that a member is about to bring data.
func (b *Broker) expectData(member string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expects = member
}

// expected returns which member is about to bring data, "" for none.
func (b *Broker) expected() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expects
}

// bringing returns the configuration that a stream gets if this member makes it. brings says that it is for data that
// this member brings.
func (b *Broker) bringing(cfg jetstream.StreamConfig) (own jetstream.StreamConfig, brings bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.brings != "" {
		cfg.Metadata = merged(cfg.Metadata, map[string]string{bringingKey: b.brings})
	}
	return cfg, b.brings != ""
}

// complete returns what must be waited for before a stream may be used, or why this member cannot fill it.
func (b *Broker) complete(info *jetstream.StreamInfo) (wait string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bringing, brought := info.Config.Metadata[bringingKey], info.Config.Metadata[broughtKey]
	switch {
	case b.brings == "" && bringing != brought:
		return fmt.Sprintf("%s to bring its data into the cluster", cmp.Or(b.expects, "a member")), nil
	case b.brings == "":
		b.expects = ""
		return "", nil
	case b.brings == bringing:
		return "", nil
	case bringing != brought:
		return "", errors.New("the other members have a part of what was brought before: " +
			"start them with empty state directories")
	}
	return "", fmt.Errorf("the cluster has data already, and %s has the data of a backend that was alone: "+
		"empty the state directories of the others if that cluster was only just made; or start %[1]s alone, without --peers; "+
		"with an empty directory it would give its data up", b.opts.Name)
}

// Brought lets the other members use the streams, all of which this member has filled.
func (b *Broker) Brought(ctx context.Context) error {
	b.mu.Lock()
	names := slices.Clone(b.filled)
	b.mu.Unlock()
	slices.Reverse(names) // the others wait for the first one
	for _, name := range names {
		err := b.await(ctx, func() (string, error) {
			if err := b.noteBrought(ctx, name); refused(err) {
				return "", err
			} else if err != nil {
				return "stream " + name, nil
			}
			return "", nil
		})
		if err != nil {
			return fmt.Errorf("note that stream %s is filled: %w", name, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.brings = ""
	return nil
}

func (b *Broker) noteBrought(ctx context.Context, name string) error {
	b.describing.Lock()
	defer b.describing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	stream, err := b.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	cfg := stream.CachedInfo().Config
	cfg.Metadata = merged(map[string]string{broughtKey: cfg.Metadata[bringingKey]}, cfg.Metadata)
	_, err = b.js.UpdateStream(ctx, cfg)
	return err
}
