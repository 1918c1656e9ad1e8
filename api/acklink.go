package api

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"unicode"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// serveLinks adds the page behind the signed links of escalations. The signature is the right: the holder of a link may
// acknowledge its one incident. A GET only shows a button, because mail servers open links, too.
func (a *API) serveLinks() {
	if a.opts.Links != nil {
		a.route(oncall.LinkPath+"{token}", access{public: true}, methods{http.MethodGet: a.showLink, http.MethodPost: a.followLink})
	}
}

// linkPage is the data of linkTemplate.
type linkPage struct {
	Title, Text string
	Output      string
	Ask         bool // show the button
}

var linkTemplate = template.Must(template.New("link").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><title>{{.Title}}</title><style>
:root{color-scheme:light dark}body{font:1.1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere}button,input{font:inherit;padding:.6rem 1rem;width:100%;box-sizing:border-box;margin:.3rem 0}
</style></head><body><h1>{{.Title}}</h1><p>{{.Text}}</p>{{if .Output}}<pre>{{.Output}}</pre>{{end}}
{{if .Ask}}<form method="post"><label>Comment<input name="comment" maxlength="500" placeholder="on it"></label>
<button type="submit">Acknowledge</button></form>{{end}}</body></html>
`))

func (w *response) linkPage(status int, page *linkPage) error {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the path is the right
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	return linkTemplate.Execute(w, page)
}

// readLink returns what a link is for, with its event, or the page that says why nothing can be done.
func (a *API) readLink(r *request) (link *oncall.Link, ev *resource.Event, status int, page *linkPage, err error) {
	link, err = a.opts.Links.Read(r.PathValue("token"), a.opts.Now())
	if errors.Is(err, oncall.ErrLink) {
		return nil, nil, http.StatusNotFound, &linkPage{Title: "This link is not valid",
			Text: "It is damaged, or its time is over. Acknowledge with: lapwing event ack ENTITY CHECK"}, nil
	}
	if err != nil {
		return nil, nil, 0, nil, err
	}
	name := link.Entity + "/" + link.Check
	if link.Contact != "" {
		if _, ok := config.Get(a.opts.Config.Snapshot(), config.Contacts, link.Namespace, link.Contact); !ok {
			return nil, nil, http.StatusNotFound, &linkPage{Title: "This link is not valid",
				Text: "The contact " + link.Contact + " is not defined any more."}, nil
		}
	}
	ev, err = a.opts.State.Event(link.Namespace, link.Entity, link.Check)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil, nil, http.StatusNotFound, &linkPage{Title: name + " is gone", Text: "The event was deleted."}, nil
	case err != nil:
		return nil, nil, 0, nil, err
	case !ev.IsIncident():
		return nil, nil, http.StatusConflict, &linkPage{Title: name + " passes", Text: "There is nothing to acknowledge."}, nil
	}
	over, err := a.passedSince(link)
	if err != nil {
		return nil, nil, 0, nil, err
	}
	if over || ev.Check.LastOK != link.LastOK {
		return nil, nil, http.StatusConflict, &linkPage{Title: "This incident of " + name + " is over",
			Text: "The check fails again: acknowledge with the link of the later notification."}, nil
	}
	return link, ev, 0, nil, nil
}

// passedSince reports whether a link's check has passed, or its event was deleted, since the link was made. The check's
// last_ok does not tell: it is 0 as long as the check has never passed, and for results that do not say when they ran.
func (a *API) passedSince(link *oncall.Link) (bool, error) {
	const page, pages = 100, 10
	var before uint64
	for range pages {
		changes, next, err := a.opts.State.History(link.Namespace, link.Entity, link.Check, before, page)
		if err != nil {
			return false, err
		}
		for _, c := range changes {
			switch {
			case c.Time.UnixMilli() < link.Made:
				return false, nil
			case c.Deleted || c.Status == 0:
				return true, nil
			}
		}
		if before = next; next == 0 {
			break
		}
	}
	return false, nil
}

func (a *API) showLink(w *response, r *request) error {
	link, ev, status, page, err := a.readLink(r)
	if err != nil {
		return err
	}
	if page != nil {
		return w.linkPage(status, page)
	}
	page = &linkPage{Output: ev.Check.Output, Ask: true}
	page.Title = fmt.Sprintf("%s/%s is %s", link.Entity, link.Check, stateWord(ev.Check.Status))
	page.Text = "Namespace " + link.Namespace + ". The acknowledgement holds the escalation, and ends when the check passes."
	if by := a.acknowledgedBy(link); by != "" {
		page.Text = "Already acknowledged by " + by + "."
		page.Ask = false
	}
	return w.linkPage(http.StatusOK, page)
}

func stateWord(status uint32) string {
	return strings.ToUpper(resource.SeverityOf(status))
}

// acknowledgedBy returns who has acknowledged the incident of a link, or "".
func (a *API) acknowledgedBy(link *oncall.Link) string {
	name := ackName(state.Key{Namespace: link.Namespace, Entity: link.Entity, Check: link.Check})
	s, ok := config.Get(a.opts.Config.Snapshot(), config.Silences, link.Namespace, name)
	if !ok || !s.Acknowledgement || s.Expired(a.opts.Now()) {
		return ""
	}
	return s.Creator
}

func (a *API) followLink(w *response, r *request) error {
	link, _, status, page, err := a.readLink(r)
	if err != nil {
		return err
	}
	if page != nil {
		return w.linkPage(status, page)
	}
	if by := a.acknowledgedBy(link); by != "" { // a second press of the button, or another contact was faster
		return w.linkPage(http.StatusOK, &linkPage{Title: "Already acknowledged", Text: "By " + by + "."})
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxLinkForm)
	if err := r.ParseForm(); err != nil {
		return invalid("the form cannot be read: %v", err)
	}
	comment := strings.TrimSpace(strings.Map(noControl, r.PostFormValue("comment")))
	if comment == "" {
		comment = "by link"
	}
	key := state.Key{Namespace: link.Namespace, Entity: link.Entity, Check: link.Check}
	r.user = &auth.Identity{User: a.linkUser(link)}
	ctx, cancel := context.WithTimeout(config.WithAuthor(r.Context(), r.author()), a.opts.WriteTimeout)
	defer cancel()
	var refused *linkPage
	fails := func() (err error) {
		if _, _, status, refused, err = a.readLink(r); err == nil && refused != nil {
			err = errNotFound
		}
		return err
	}
	said := &acknowledgement{Comment: comment}
	one, err := a.silences.newAck(r.user.User, key, said)
	if err == nil {
		err = a.silences.keepAck(ctx, one, fails, func(*resource.Silenced) error { return nil })
	}
	switch {
	case refused != nil:
		return w.linkPage(status, refused)
	case err != nil:
		return err
	}
	return w.linkPage(http.StatusOK, &linkPage{Title: "Acknowledged",
		Text: fmt.Sprintf("%s/%s is yours, %s. The acknowledgement ends when the check passes. To end it earlier: "+
			"lapwing event unack %s %s --namespace %s", link.Entity, link.Check, r.user.User, link.Entity, link.Check, link.Namespace)})
}

// noControl leaves control characters out of a text: terminals and YAML do not take them.
func noControl(c rune) rune {
	if unicode.IsControl(c) || c == unicode.ReplacementChar {
		return -1
	}
	return c
}

// maxLinkForm bounds the form of a link's page, in bytes.
const maxLinkForm = 4 << 10

// linkUser returns in whose name a link acknowledges. It is never just the name of an account: the author of a contact may
// write any account into it.
func (a *API) linkUser(link *oncall.Link) string {
	if c, ok := config.Get(a.opts.Config.Snapshot(), config.Contacts, link.Namespace, link.Contact); ok && c.User != "" {
		return c.User + " (contact " + link.Contact + ")"
	}
	if link.Contact == "" {
		return "a holder of the link"
	}
	return "contact " + link.Contact
}
