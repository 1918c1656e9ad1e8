package config

import (
	"bytes"
	"context"
	"slices"
)

// Author is the user who writes a definition.
type Author struct {
	User    string
	Remote  string // address of the client
	Request string // method and path
	// Change, if not nil, gets what the latest write did: created, updated, unchanged or deleted.
	Change *string
}

type authorKey struct{}

// WithAuthor returns a context whose writes are the author's. Writes without an author are the backend's own, for
// example entities that agents register. They are not reported to Options.Written.
func WithAuthor(ctx context.Context, a Author) context.Context {
	return context.WithValue(ctx, authorKey{}, a)
}

// AuthorOf returns the author of writes with ctx, or false if they are the backend's own.
func AuthorOf(ctx context.Context) (Author, bool) {
	a, ok := ctx.Value(authorKey{}).(Author)
	return a, ok
}

// Write is a definition that an author has written.
type Write struct {
	Author
	Kind, Namespace, Name string
	Old, New              []byte // JSON; nil if the definition did not exist before, or is deleted
	Revision              uint64
}

// authored reports whether a write must be reported. Then the value it replaces is needed.
func (s *Store) authored(ctx context.Context) bool {
	a, ok := AuthorOf(ctx)
	return ok && (s.opts.Written != nil || a.Change != nil)
}

// written reports a write.
func (s *Store) written(ctx context.Context, kind, namespace, name string, old, new []byte, revision uint64) {
	author, ok := AuthorOf(ctx)
	if ok && author.Change != nil {
		*author.Change = changeOf(old, new)
	}
	if !ok || s.opts.Written == nil {
		return
	}
	s.opts.Written(ctx, Write{
		Author: author, Kind: kind, Namespace: namespace, Name: name,
		Old: slices.Clone(old), New: slices.Clone(new), Revision: revision,
	})
}

// changeOf returns what a write did in a word.
func changeOf(old, new []byte) string {
	switch {
	case old == nil:
		return "created"
	case new == nil:
		return "deleted"
	case bytes.Equal(old, new):
		return "unchanged"
	}
	return "updated"
}

type dryRunKey struct{}

// WithDryRun returns a context whose writes are checked as far as they can be, and not done.
func WithDryRun(ctx context.Context) context.Context {
	return context.WithValue(ctx, dryRunKey{}, true)
}

// IsDryRun reports whether writes with ctx are not done.
func IsDryRun(ctx context.Context) bool { return ctx.Value(dryRunKey{}) != nil }
