package config

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Author is on whose behalf definitions are written.
type Author struct {
	User    string
	Remote  string // address of the client
	Request string // method and path
}

type authorKey struct{}

// WithAuthor makes writes with the context the author's. Those without are the backend's own, such as the entities that
// agents register, and are not reported to Written.
func WithAuthor(ctx context.Context, a Author) context.Context {
	return context.WithValue(ctx, authorKey{}, a)
}

// AuthorOf is the author whose writes those with the context are; false if they are the backend's own.
func AuthorOf(ctx context.Context) (Author, bool) {
	a, ok := ctx.Value(authorKey{}).(Author)
	return a, ok
}

// Write is a definition that an author has written.
type Write struct {
	Author
	Kind, Namespace, Name string
	Old, New              []byte // JSON; nil if it was not there before, or is not there any more
	Revision              uint64
}

// authored says whether a write is to be reported: then it has to know what it replaces.
func (s *Store) authored(ctx context.Context) bool {
	_, ok := AuthorOf(ctx)
	return ok && s.opts.Written != nil
}

// written reports a write.
func (s *Store) written(ctx context.Context, kind, namespace, name string, old, new []byte, revision uint64) {
	author, ok := AuthorOf(ctx)
	if !ok || s.opts.Written == nil {
		return
	}
	s.opts.Written(ctx, Write{
		Author: author, Kind: kind, Namespace: namespace, Name: name,
		Old: slices.Clone(old), New: slices.Clone(new), Revision: revision,
	})
}

// replace writes a value over whatever there is, and returns that.
func (s *Store) replace(ctx context.Context, key string, value []byte) (old []byte, revision uint64, err error) {
	for {
		entry, err := s.bucket.Get(ctx, key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			revision, err = s.bucket.Create(ctx, key, value)
			if errors.Is(err, jetstream.ErrKeyExists) {
				continue
			}
			return nil, revision, err
		case err != nil:
			return nil, 0, err
		}
		revision, err = s.bucket.Update(ctx, key, value, entry.Revision())
		if wrongRevision(err) {
			continue
		}
		return entry.Value(), revision, err
	}
}
