package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// enabledAccount matches Active Directory accounts that are not disabled.
	enabledAccount = "(!(userAccountControl:1.2.840.113556.1.4.803:=2))"
	principalName  = "userPrincipalName"

	// maxNesting and maxGroups bound the search for groups of groups, groupsAtOnce the groups per query.
	maxNesting   = 10
	maxGroups    = 5000
	groupsAtOnce = 50
)

var (
	// errNoSearch says that a directory can only be searched with the user's password.
	errNoSearch = errors.New("the directory has no account to search with")
	// errAmbiguous says that several entries match a name.
	errAmbiguous = errors.New("more than one entry has that name")
)

// signIn finds the user with that name and password in a directory.
func (p *providers) signIn(
	ctx context.Context, def *resource.AuthProvider, name, password string, gate bindGate,
) (id *Identity, err error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a turn to ask %q: %w", def.Metadata.Name, ctx.Err())
	}
	defer func() { p.count(def.Type, err) }()
	return p.ask(ctx, def, ErrCredentials, func(c *directoryConn) (*person, error) {
		c.gate = gate
		return c.signIn(name, password)
	})
}

// renewDirectory looks up a user again, without its password.
func (p *providers) renewDirectory(ctx context.Context, def *resource.AuthProvider, user string, o Origin) (*Identity, error) {
	id, err := p.ask(ctx, def, ErrSignInOver, func(c *directoryConn) (*person, error) {
		return c.lookUp(o.UserID, strings.TrimPrefix(user, withPrefix(def.Directory.UsernamePrefix, "")))
	})
	if errors.Is(err, errNoSearch) {
		return &Identity{User: user, Groups: o.upstream.Groups, Origin: o}, nil
	}
	return id, err
}

// ask queries a directory's servers until one has the answer. unknown is a server's error for a user it does not have;
// it is returned if no server has the user.
func (p *providers) ask(
	ctx context.Context, def *resource.AuthProvider, unknown error, question func(*directoryConn) (*person, error),
) (*Identity, error) {
	var failed error
	for i := range def.Directory.Servers {
		s := &def.Directory.Servers[i]
		who, err := askServer(ctx, s, def.Type == resource.ADType, question)
		var guessing *GuessingError
		switch {
		case errors.As(err, &guessing):
			return nil, err
		case err == nil:
			d := def.Directory
			return &Identity{
				User:   withPrefix(d.UsernamePrefix, who.name),
				Groups: groups(who.groups, d.GroupsPrefix, d.AllowedGroups),
				Origin: Origin{Provider: def.Metadata.Name, Type: def.Type, UserID: who.dn},
			}, nil
		case errors.Is(err, errNoSearch):
			return nil, err
		case errors.Is(err, errAmbiguous):
			p.rare.Warn("directory has several users of one name, none can sign in", s.Host, "provider", def.Metadata.Name, "server", s.Host)
		case errors.Is(err, ErrCredentials):
		default:
			failed = err
			p.rare.Warn("directory could not be asked", s.Host, "provider", def.Metadata.Name, "server", s.Host, "err", err)
		}
	}
	if failed != nil {
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, def.Metadata.Name)
	}
	return nil, unknown
}

// person is a user of a directory.
type person struct {
	dn, name string
	groups   []string
}

// directoryConn is a connection to a server of a directory.
type directoryConn struct {
	*ldap.Conn
	server *resource.DirectoryServer
	active bool     // an Active Directory
	gate   bindGate // for a sign-in
}

func askServer(
	ctx context.Context, s *resource.DirectoryServer, active bool, question func(*directoryConn) (*person, error),
) (*person, error) {
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	conn, err := dialDirectory(ctx, s)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// Closing the connection is the only way to cancel a request.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	conn.SetTimeout(providerTimeout)
	return question(&directoryConn{Conn: conn, server: s, active: active})
}

func dialDirectory(ctx context.Context, s *resource.DirectoryServer) (*ldap.Conn, error) {
	var config *tls.Config
	if s.Security != "insecure" {
		files, err := tlsfiles.New(tlsfiles.Options{Cert: s.ClientCertFile, Key: s.ClientKeyFile, CA: s.TrustedCAFile, Insecure: s.Insecure})
		if err != nil {
			return nil, fmt.Errorf("prepare TLS to %s: %w", s.Host, err)
		}
		config = files.Client()
		config.ServerName = s.Host
	}
	address := net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to directory: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = raw.SetDeadline(deadline)
	}
	if s.Security == "tls" {
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("connect to directory %s: %w", address, err)
		}
		raw = secure
	}
	conn := ldap.NewConn(raw, s.Security == "tls")
	conn.Start()
	if s.Security == "starttls" {
		if err := conn.StartTLS(config); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("start TLS with directory %s: %w", address, err)
		}
	}
	return conn, nil
}

// signIn finds the person and verifies its password. It fails with ErrCredentials or a GuessingError.
func (c *directoryConn) signIn(name, password string) (*person, error) {
	principal := c.principal(name)
	if principal != "" && c.server.Binding == nil {
		return c.signInAlone(name, principal, password)
	}
	if err := c.bindSearcher(); err != nil {
		return nil, err
	}
	// The entry is found before a password is tried: all names of a person share one count of wrong passwords.
	who, err := c.find(name)
	if err != nil {
		return nil, err
	}
	names := []string{who.dn}
	if principal != "" {
		names = []string{principal, who.dn}
	}
	if err := c.prove(password, []gated{{who.dn, password}}, names...); err != nil {
		return nil, err
	}
	if err := c.bindSearcher(); err != nil {
		return nil, err
	}
	return who, c.addGroups(who)
}

// signInAlone is signIn without an account for searches: the person's password must be verified before the entry can be
// found.
func (c *directoryConn) signInAlone(name, principal, password string) (*person, error) {
	// A person may have several principal names, for example one per domain. A password that is wrong for one of them
	// may be right for another person with the same local part.
	local, _, _ := strings.Cut(principal[strings.LastIndexByte(principal, '\\')+1:], "@")
	gates := []gated{{principal, password}, {"local part " + local, strings.ToLower(principal) + "\x00" + password}}
	if err := c.prove(password, gates, principal); err != nil {
		return nil, err
	}
	who, err := c.find(name)
	if err != nil {
		return nil, err
	}
	// So far it is not verified that the entry belongs to the principal.
	if err := c.prove(password, []gated{{who.dn, password}}, who.dn); err != nil {
		return nil, err
	}
	return who, c.addGroups(who)
}

// lookUp finds the person with a distinguished name who signed in with the given name. It fails with ErrCredentials if
// the person is gone.
func (c *directoryConn) lookUp(dn, name string) (*person, error) {
	if c.server.DefaultUPNDomain != "" && c.server.Binding == nil {
		return nil, errNoSearch
	}
	if err := c.bindSearcher(); err != nil {
		return nil, err
	}
	who, err := c.person(dn, ldap.ScopeBaseObject, "", name)
	if err != nil {
		return nil, err
	}
	return who, c.addGroups(who)
}

// principal is the name to bind with before the person's entry is known; "" if the entry is searched first.
func (c *directoryConn) principal(name string) string {
	if c.server.DefaultUPNDomain == "" {
		return ""
	}
	if strings.Contains(name, "@") {
		return name
	}
	return name + "@" + strings.TrimPrefix(c.server.DefaultUPNDomain, "@")
}

// gated is a question for the gate: the entry for which a password counts, and a text that identifies the password
// there.
type gated struct{ entry, password string }

// errNotAsked reports to a gate that the directory was not asked after all.
var errNotAsked = errors.New("the directory was not asked")

// prove binds with a person's password under each of its names, if the gate allows it. It fails with ErrCredentials if
// the password is wrong or remembered as wrong: servers may be replicas, and one typing error must not count for each.
func (c *directoryConn) prove(password string, gates []gated, names ...string) error {
	if password == "" { // an empty password would be an anonymous bind, which succeeds
		return ErrCredentials
	}
	answer := errNotAsked
	for _, g := range gates {
		ended, err := c.gate(g.entry, g.password)
		if err != nil {
			return err
		}
		defer func() { ended(answer) }()
	}
	for _, name := range names {
		if answer = c.bindPerson(name, password); answer != nil {
			break
		}
	}
	return answer
}

// bindPerson binds with a person's password. It fails with ErrCredentials if the password is wrong.
func (c *directoryConn) bindPerson(name, password string) error {
	err := c.Bind(name, password)
	switch {
	case ldap.IsErrorAnyOf(err, ldap.LDAPResultInvalidCredentials, ldap.LDAPResultInappropriateAuthentication,
		ldap.LDAPResultInsufficientAccessRights, ldap.LDAPResultUnwillingToPerform, ldap.LDAPResultConstraintViolation,
		ldap.LDAPResultNoSuchObject):
		return ErrCredentials
	case err != nil:
		return fmt.Errorf("bind as %q: %w", name, err)
	}
	return nil
}

// bindSearcher binds with the account for searches, or anonymously if there is none.
func (c *directoryConn) bindSearcher() error {
	if b := c.server.Binding; b != nil && b.UserDN != "" {
		if err := c.Bind(b.UserDN, b.Password); err != nil {
			return fmt.Errorf("bind as %q to search: %w", b.UserDN, err)
		}
		return nil
	}
	if err := c.UnauthenticatedBind(""); err != nil {
		return fmt.Errorf("bind to search without an account: %w", err)
	}
	return nil
}

// find searches for the person who signs in with a name.
func (c *directoryConn) find(name string) (*person, error) {
	search := c.server.UserSearch
	attribute := search.Attribute
	if c.server.DefaultUPNDomain != "" && strings.Contains(name, "@") {
		attribute = principalName
	}
	return c.person(search.BaseDN, ldap.ScopeWholeSubtree, attribute, name)
}

// person searches for one person. If attribute is not "", it must have the value.
func (c *directoryConn) person(base string, scope int, attribute, value string) (*person, error) {
	search := c.server.UserSearch
	filter := "(objectClass=" + search.ObjectClass + ")"
	if attribute != "" {
		filter += "(" + attribute + "=" + ldap.EscapeFilter(value) + ")"
	}
	if c.active {
		filter += enabledAccount
	}
	// A limit of two is enough to detect a second entry.
	result, err := c.Search(ldap.NewSearchRequest(base, scope, ldap.NeverDerefAliases, 2, int(providerTimeout/time.Second), false,
		"(&"+filter+")", []string{search.Attribute}, nil))
	switch {
	case ldap.IsErrorAnyOf(err, ldap.LDAPResultNoSuchObject):
		return nil, ErrCredentials
	case ldap.IsErrorAnyOf(err, ldap.LDAPResultSizeLimitExceeded), err == nil && len(result.Entries) > 1:
		return nil, errAmbiguous
	case err != nil:
		return nil, fmt.Errorf("search for a user below %q: %w", base, err)
	case len(result.Entries) == 0:
		return nil, ErrCredentials
	}
	entry := result.Entries[0]
	names := entry.GetEqualFoldAttributeValues(search.Attribute)
	if len(names) == 0 || names[0] == "" {
		return nil, fmt.Errorf("entry %q has no %s", entry.DN, search.Attribute)
	}
	// The directory's spelling is used, regardless of the case that people type.
	name := names[0]
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, value) }); i >= 0 {
		name = names[i]
	}
	return &person{dn: entry.DN, name: name}, nil
}

// addGroups finds a person's groups and, if configured, the groups of the groups.
func (c *directoryConn) addGroups(who *person) error {
	search := c.server.GroupSearch
	members := []string{who.dn}
	if strings.EqualFold(search.Attribute, "memberUid") { // of POSIX groups, which list names
		members = []string{who.name}
	}
	seen := map[string]bool{}
	for level := 0; len(members) > 0 && level <= maxNesting; level++ {
		var next []string
		for chunk := range slices.Chunk(members, groupsAtOnce) {
			var filter strings.Builder
			for _, m := range chunk {
				filter.WriteString("(" + search.Attribute + "=" + ldap.EscapeFilter(m) + ")")
			}
			result, err := c.SearchWithPaging(ldap.NewSearchRequest(search.BaseDN, ldap.ScopeWholeSubtree, ldap.NeverDerefAliases, 0,
				int(providerTimeout/time.Second), false, "(&(objectClass="+search.ObjectClass+")(|"+filter.String()+"))",
				[]string{search.NameAttribute}, nil), 500)
			if err != nil {
				return fmt.Errorf("search for groups of %q: %w", who.dn, err)
			}
			for _, entry := range result.Entries {
				if seen[entry.DN] {
					continue
				}
				seen[entry.DN] = true
				next = append(next, entry.DN)
				who.groups = append(who.groups, entry.GetEqualFoldAttributeValue(search.NameAttribute))
			}
			if len(seen) > maxGroups {
				return fmt.Errorf("search for groups of %q: more than %d", who.dn, maxGroups)
			}
		}
		if !c.server.IncludeNestedGroups {
			return nil
		}
		members = next
	}
	return nil
}
