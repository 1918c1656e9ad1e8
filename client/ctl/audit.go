package ctl

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// auditCommand has the commands that show who changed what.
func auditCommand() *cobra.Command {
	return groupOf("audit", "show who changed what", "list --since 1d", auditListCommand(), auditShowCommand())
}

// auditEvery is the time between two looks of "audit list --follow".
const auditEvery = 2 * time.Second

func auditListCommand() *cobra.Command {
	var (
		since, until, user, kind, name, action, fields string

		all, follow bool
		limit       int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list changes, newest first",
		Long: `List changes, newest first. With --follow, they are listed with the newest last, and further ones are printed as they are
made, until the command is interrupted (exit code 0).`,
		Example: `  lapwing audit list --since 1d
  lapwing audit list --user alice --kind checks --all-namespaces
  lapwing audit list --kind silenced --follow
  lapwing audit list --field-selector 'audit.action == delete && audit.user != ci'
  lapwing audit show 4711`,
		Args: args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			if err := sentMoments(&since, &until, time.Local, time.Now()); err != nil {
				return err
			}
			if action != "" && !slices.Contains(auditActions, action) {
				err := fmt.Errorf("--action %q: it must be one of %s", action, commaSpace(auditActions))
				if near := optionerr.Nearest(action, auditActions); near != "" {
					err = fmt.Errorf("%w: did you mean %q?", err, near)
				}
				return err
			}
			q := url.Values{}
			for key, value := range map[string]string{
				"since": since, "until": until, "user": user, "name": name, "action": action, "limit": strconv.Itoa(limit),
				"fieldSelector": fields,
			} {
				if value != "" {
					q.Set(key, value)
				}
			}
			if kind != "" {
				word, err := auditedKind(kind)
				if err != nil {
					return err
				}
				q.Set("resource", word)
			}
			if limit <= 0 {
				return errors.New("--limit must be more than 0")
			}
			path := s.ownPath("audit")
			if all {
				path = "/api/lapwing/v1/audit"
			}
			read := func(ctx context.Context, q url.Values) ([]client.AuditEntry, string, error) {
				return auditPage(ctx, s, path, q)
			}
			if follow {
				return followAudit(ctx, s, read, q)
			}
			list, more, err := read(ctx, q)
			if err != nil {
				return err
			}
			if more != "" {
				fmt.Fprintf(s.errOut, "%d shown, more exist; see --limit\n", len(list))
			}
			if len(list) == 0 {
				if !all {
					if err := s.knownNamespace(ctx, s.namespace); err != nil {
						return err
					}
				}
				text := s.noChanges(all, user+kind+name+action+fields+since+until != "")
				fmt.Fprintln(s.errOut, text+nearestInAudit(ctx, read, q))
			}
			raw, err := jsonOf(list)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) {
				t := auditTable()
				for i := range list {
					t.rows = append(t.rows, auditRow(&list[i]))
				}
				return t, nil
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "", "only changes from then on: "+timeForms)
	f.StringVar(&until, "until", "", "only changes up to then, as for --since; a day belongs to it")
	f.StringVar(&user, "user", "", "only changes by this user")
	f.StringVar(&kind, "kind", "", "only changes of this kind, for example checks")
	f.StringVar(&name, "name", "", "only changes of the object with this name")
	f.StringVar(&action, "action", "", "only this kind of change: create, update, delete or execute")
	f.StringVar(&fields, "field-selector", "",
		"only changes whose fields match, for example 'audit.user != ci && audit.resource == checks'")
	f.IntVarP(&limit, "limit", "n", 100, "number of changes to list at most")
	f.BoolVar(&all, "all-namespaces", false, "list the changes of all namespaces, and of what belongs to none")
	f.BoolVarP(&follow, "follow", "f", false, "keep running, and print each further change")
	formatFlag(cmd)
	return cmd
}

// nearestInAudit returns the user or name of the newest changes that is probably meant by the selected one, in the form
// of an appended question.
func nearestInAudit(ctx context.Context, read auditReader, selected url.Values) string {
	for _, field := range []struct {
		key string
		of  func(*client.AuditEntry) string
	}{
		{"name", func(e *client.AuditEntry) string { return e.Name }},
		{"user", func(e *client.AuditEntry) string { return e.User }},
	} {
		word := selected.Get(field.key)
		if word == "" {
			continue
		}
		q := maps.Clone(selected)
		q.Del(field.key)
		q.Set("limit", strconv.Itoa(auditFollowPage))
		list, _, err := read(ctx, q)
		if err != nil {
			return "" // the answer is complete without it
		}
		var known []string
		for i := range list {
			known = append(known, field.of(&list[i]))
		}
		slices.Sort(known)
		if near := optionerr.Nearest(word, slices.Compact(known)); near != "" && near != word {
			return fmt.Sprintf("\nDid you mean %s?", printable(near))
		}
	}
	return ""
}

// noChanges says that there are no changes, and where else they may be: a namespace's part of the log is without the others'
// and without what belongs to none, such as users.
func (s *invocation) noChanges(all, selected bool) string {
	text := "no changes"
	if selected {
		text += " match"
	}
	if all {
		return text + " in any namespace"
	}
	return text + " in namespace " + s.namespace +
		"; --all-namespaces also shows the other namespaces, and what belongs to none"
}

func auditEntries(ctx context.Context, s *invocation, path string, q url.Values) ([]client.AuditEntry, error) {
	list, _, err := auditPage(ctx, s, path, q)
	return list, err
}

// auditPage returns a page of entries, newest first, and where the next page begins, "" if there is none.
func auditPage(ctx context.Context, s *invocation, path string, q url.Values) ([]client.AuditEntry, string, error) {
	list := []client.AuditEntry{}
	header, err := s.client.Exchange(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &list)
	if err != nil {
		return nil, "", fmt.Errorf("list the audit log: %w", bare(err))
	}
	return list, header.Get("Sensu-Continue"), nil
}

// auditFollowPage is how many entries one request for further ones asks for.
const auditFollowPage = 1000

// entriesAfter returns all entries with IDs above last, newest first, however many there are.
func entriesAfter(ctx context.Context, read auditReader, q url.Values, last uint64) (list []client.AuditEntry, err error) {
	q = maps.Clone(q)
	q.Set("limit", strconv.Itoa(auditFollowPage))
	for {
		page, next, err := read(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if e.ID <= last {
				return list, nil
			}
			list = append(list, e)
		}
		if next == "" {
			return list, nil
		}
		q.Set("continue", next)
	}
}

// auditReader returns a page of entries, newest first, and where the next page begins.
type auditReader func(ctx context.Context, q url.Values) ([]client.AuditEntry, string, error)

// followAudit prints entries, newest last, and then the further ones.
func followAudit(ctx context.Context, s *invocation, read auditReader, q url.Values) error {
	list, _, err := read(ctx, q)
	if err != nil {
		return err
	}
	t := auditTable()
	t.color = s.color
	t.widths = []int{6, 19, 12, 7, 12, 12, 24}
	w := bufio.NewWriter(s.out)
	if s.format == formatTabular {
		t.write(w)
	}
	var last uint64
	for {
		for _, e := range slices.Backward(list) {
			last = e.ID
			if s.format == formatTabular {
				t.writeRow(w, auditRow(&e), false)
				continue
			}
			if err := json.NewEncoder(w).Encode(&e); err != nil {
				return err
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(auditEvery):
		}
		if list, err = entriesAfter(ctx, read, q, last); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

func auditTable() *table {
	return &table{columns: []column{
		{title: "ID", right: true}, {title: "Time"}, {title: "User"}, {title: "Action"}, {title: "Kind"}, {title: "Namespace"},
		{title: "Name"},
	}}
}

func auditRow(e *client.AuditEntry) []string {
	return []string{
		strconv.FormatUint(e.ID, 10), e.Time.Local().Format(time.DateTime), cmp.Or(e.User, "lapwing"), e.Action, e.Resource,
		e.Namespace, e.Name,
	}
}

func auditShowCommand() *cobra.Command {
	var before, after bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show one change: who, when, from where, and each changed field",
		Long: `Show one change: who, when, from where, and each changed field.

With --before or --after, print the whole definition as it was then, in YAML that 'lapwing create -f -' takes. So a changed or
deleted definition can be put back. The log has no secrets. A deletion names the change before it: --before of the deletion
prints what that change left.`,
		Example: "  lapwing audit show 4711\n  lapwing audit show 4711 --format json\n" +
			"  lapwing audit show 4711 --before | lapwing create -f -",
		Args: args("ID"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 63)
			if err != nil {
				return hint(fmt.Errorf("%q is no ID of a change", args[0]), "See the column ID of 'lapwing audit list'.")
			}
			upTo := base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatUint(id+1, 10)))
			q := url.Values{"limit": {"1"}, "continue": {upTo}}
			list, err := auditEntries(ctx, s, s.ownPath("audit"), q)
			if hidden(err) || err == nil && !isEntry(list, id) { // of another namespace, or of none
				if whole, wholeErr := auditEntries(ctx, s, "/api/lapwing/v1/audit", q); wholeErr == nil {
					list, err = whole, nil
				}
			}
			if err != nil {
				return err
			}
			if !isEntry(list, id) {
				return hint(fmt.Errorf("no change has the ID %d", id), "See 'lapwing audit list', also with --all-namespaces, for the existing ones.")
			}
			if before || after {
				return s.printThen(ctx, &list[0], before)
			}
			raw, err := jsonOf(&list[0])
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) {
				info := auditInfo(&list[0])
				if list[0].Action == "delete" {
					info.lines = append(info.lines, s.changedBefore(ctx, &list[0])...)
				}
				return info, nil
			})
		}),
	}
	cmd.Flags().BoolVar(&before, "before", false, "print the definition as it was before the change, for 'lapwing create -f -'")
	cmd.Flags().BoolVar(&after, "after", false, "print the definition as it was after the change, for 'lapwing create -f -'")
	cmd.MarkFlagsMutuallyExclusive("before", "after")
	formatFlag(cmd)
	return cmd
}

func isEntry(list []client.AuditEntry, id uint64) bool { return len(list) > 0 && list[0].ID == id }

// auditInfo shows a change, with a line for each changed field.
func auditInfo(e *client.AuditEntry) *infoBlock {
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	block := &infoBlock{title: fmt.Sprintf("%s %s %s", e.Action, e.Resource, name), lines: []infoLine{
		{"User", cmp.Or(e.User, "lapwing")}, {"Time", e.Time.Local().Format(time.RFC3339)}, {"From", e.Remote}, {"Request", e.Request},
	}}
	for _, c := range e.Changes {
		var text string
		switch {
		case c.Path == "" && len(c.New) == 0:
			text = wholeLines("- ", c.Old)
		case c.Path == "" && len(c.Old) == 0:
			text = wholeLines("+ ", c.New)
		case len(c.Old) == 0:
			text = "+ " + string(c.New)
		case len(c.New) == 0:
			text = "- " + string(c.Old)
		default:
			text = string(c.Old) + " -> " + string(c.New)
		}
		block.lines = append(block.lines, infoLine{cmp.Or(strings.TrimPrefix(c.Path, "/"), "object"), text})
	}
	return block
}

// wholeLines returns a whole object in YAML, below the label, each line after a sign.
func wholeLines(sign string, raw json.RawMessage) string {
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return sign + string(raw)
	}
	return "\n" + sign + strings.ReplaceAll(strings.TrimRight(string(text), "\n"), "\n", "\n"+sign)
}

// changedBefore returns a line about the update before a deletion, which may be the reason for it: the definition that was
// deleted need not be the one to put back.
func (s *invocation) changedBefore(ctx context.Context, e *client.AuditEntry) []infoLine {
	path := "/api/lapwing/v1/audit"
	if e.Namespace != "" {
		path = "/api/lapwing/v1/namespaces/" + url.PathEscape(e.Namespace) + "/audit"
	}
	list, err := auditEntries(ctx, s, path, url.Values{
		"resource": {e.Resource}, "name": {e.Name}, "limit": {"1"},
		"continue": {base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatUint(e.ID, 10)))},
	})
	if err != nil || len(list) == 0 || list[0].Action != "update" || list[0].Namespace != e.Namespace {
		return nil
	}
	was := &list[0]
	return []infoLine{{"Changed before", fmt.Sprintf("by %s at %s: lapwing audit show %d", cmp.Or(was.User, "lapwing"),
		was.Time.Local().Format(time.RFC3339), was.ID)}}
}

// auditActions are what the audit log has of changes.
var auditActions = []string{"create", "update", "delete", "execute"}

// auditedKind returns the name in roles of a kind whose changes are listed.
func auditedKind(name string) (string, error) {
	word := resourceWord(name)
	known := slices.Concat([]string{"deadletters", "metrics", "cluster", "audit"}, typeNames())
	for _, k := range resource.Kinds {
		known = append(known, k.Role, k.Plural)
	}
	if _, ok := kindByName(name); ok || slices.Contains(known, word) {
		return word, nil
	}
	err := fmt.Errorf("--kind: unknown kind %q", name)
	if near := optionerr.Nearest(name, known); near != "" {
		err = fmt.Errorf("%w: did you mean %q?", err, near)
	}
	return "", hint(err, "See 'lapwing describe-type all' for the types.")
}
