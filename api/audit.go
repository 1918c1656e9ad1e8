package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// AuditLog has the recorded changes. *audit.Log implements it.
type AuditLog interface {
	Read(ctx context.Context, q audit.Query) (entries []audit.Entry, next uint64, err error)
	Record(ctx context.Context, e audit.Entry)
}

const (
	auditPage    = 100    // default number of entries
	auditPageMax = 10_000 // largest number of entries
)

// serveAudit adds the audit log: all of it for users who may list it in the cluster, or one namespace's part.
func (a *API) serveAudit() {
	who := access{resource: "audit"}
	a.route(ours+"audit", who, methods{http.MethodGet: a.listAudit})
	a.route(ours+"namespaces/{namespace}/audit", who, methods{http.MethodGet: a.listAudit})
}

// listAudit lists entries, newest first, selected by ?user=, action=, resource=, name=, since=, until= and fieldSelector=.
func (a *API) listAudit(w *response, r *request) error {
	q := r.URL.Query()
	query := audit.Query{
		User: q.Get("user"), Action: q.Get("action"), Resource: q.Get("resource"), Name: q.Get("name"),
		Namespace: r.PathValue("namespace"), Limit: auditPage,
	}
	if query.Namespace == "" {
		query.Namespace = q.Get("namespace")
	} else if query.Namespace == allNamespaces {
		query.Namespace = ""
	}
	var err error
	if query.Since, err = instant(q.Get("since"), a.opts.Now()); err != nil {
		return err
	}
	if query.Until, err = instant(q.Get("until"), a.opts.Now()); err != nil {
		return err
	}
	asked, err := fieldsAsked(r, audit.Entry{})
	if err != nil {
		return err
	}
	if asked != nil {
		now := a.opts.Now()
		query.Where = func(e *audit.Entry) bool { return asked.MatchAt(selector.Resource(e), now) }
	}
	p := pageOf(r, nil)
	if p.limit > 0 {
		query.Limit = min(p.limit, auditPageMax)
	}
	if p.after != "" {
		if query.Before, err = strconv.ParseUint(p.after, 10, 64); err != nil {
			return invalid("continue: not a token of this list")
		}
	}
	var entries []audit.Entry
	var next uint64
	if a.opts.Audit != nil {
		if entries, next, err = a.opts.Audit.Read(r.Context(), query); err != nil {
			return err
		}
	}
	token := ""
	if next > 0 {
		token = strconv.FormatUint(next, 10)
	}
	list := newArray(w, token)
	for _, e := range entries {
		if err := list.add(e); err != nil {
			return err
		}
	}
	return list.finish()
}

// audited records an act that writes no definition. config reports the acts that write one.
func (a *API) audited(ctx context.Context, t *act, action, resource, namespace, name string) {
	if a.opts.Audit == nil {
		return
	}
	author := t.author()
	a.opts.Audit.Record(ctx, audit.Entry{
		User: author.User, Remote: author.Remote, Request: author.Request,
		Action: action, Resource: resource, Namespace: namespace, Name: name,
	})
}

// instant reads a time: RFC 3339, Unix seconds, or an age like "2h".
func instant(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 && n < 1<<40 {
		return time.Unix(n, 0), nil
	}
	if d, err := duration.Parse(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, invalid("%q is no time: it must be in RFC 3339, in Unix seconds, or how long ago, as in 2h or 30d", s)
}
