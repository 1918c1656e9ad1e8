package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"
	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestDirectoryWithoutItsFiles has a directory whose file of certificate authorities is missing: the log says why its
// users cannot sign in.
func TestDirectoryWithoutItsFiles(t *testing.T) {
	store := testconfig.Store(t)
	var log bytes.Buffer
	a, err := New(Options{Config: store, Now: new(clock).now, HashCost: bcrypt.MinCost, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "ca.pem")
	search := resource.DirectorySearch{BaseDN: "dc=example", Attribute: "uid", NameAttribute: "cn", ObjectClass: "person"}
	putProvider(t, a, &resource.AuthProvider{
		Type: resource.LDAPType, Metadata: resource.ObjectMeta{Name: "corp"},
		Directory: &resource.Directory{Servers: []resource.DirectoryServer{{
			Host: "ldap.example", Port: 636, Security: "tls", TrustedCAFile: missing,
			UserSearch: search, GroupSearch: search,
		}}},
	})
	if _, err := a.SignIn(t.Context(), "192.0.2.1", "alice", "her-password"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("signed in with %v", err)
	}
	for _, part := range []string{"directory could not be asked", "provider=corp", "server=ldap.example", missing + ": no such file"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log lacks %s: %s", part, log.String())
		}
	}
}

// withDirectory is an Auth with a provider "corp" of a type, with the given servers.
func withDirectory(t testing.TB, typ string, change func(*resource.Directory), servers ...resource.DirectoryServer) *Auth {
	t.Helper()
	a, _ := seeded(t)
	// The hash for unknown users is as slow as real ones, and most users here are unknown to lapwing.
	compare := a.passwords.compare
	a.passwords.compare = func(hash, password []byte) error {
		if string(hash) == resource.NobodysHash {
			return bcrypt.ErrMismatchedHashAndPassword
		}
		return compare(hash, password)
	}
	d := &resource.Directory{Servers: servers}
	if change != nil {
		change(d)
	}
	putProvider(t, a, &resource.AuthProvider{Type: typ, Metadata: resource.ObjectMeta{Name: "corp"}, Directory: d})
	return a
}

// in returns the user and groups that a name and password sign in as, or the error.
func in(t testing.TB, a *Auth, name, password string) string {
	t.Helper()
	id, err := a.SignIn(t.Context(), "", name, password)
	switch {
	case errors.Is(err, ErrCredentials):
		return "wrong"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case err != nil:
		return err.Error()
	}
	return strings.Join(append([]string{id.User}, id.Groups...), " ")
}

func TestLDAP(t *testing.T) {
	s := startSlapd(t, false)
	a := withDirectory(t, resource.LDAPType, nil, s.server(nil))
	expect := func(a *Auth, name, password, want string) {
		t.Helper()
		if got := in(t, a, name, password); got != want {
			t.Errorf("%s with %q: %s, want %s", name, password, got, want)
		}
	}
	expect(a, "alice", "alice-password", "Alice ops")
	expect(a, "ALICE", "alice-password", "Alice ops")
	expect(a, "al", "alice-password", "al ops")
	expect(a, "bob", "bob-password", "bob ops")
	for _, wrong := range [][2]string{
		{"alice", "bob-password"}, {"alice", ""}, {"", ""}, {"nobody", "alice-password"}, {"carol", "carol-password"},
		{"eve", "x"}, {"eve", ""}, {"a*", "alice-password"}, {"*", "alice-password"}, {"alice)(uid=*", "alice-password"},
		{"alice\x00", "alice-password"}, {"searcher", ldapSecret}, {searcherDN, ldapSecret}, {"bob)(|(uid=alice)", "alice-password"},
	} {
		expect(a, wrong[0], wrong[1], "wrong")
	}
	// Users of lapwing come first.
	expect(a, "admin", agentPassword, "admin cluster-admins")
	expect(a, "admin", "directory-admin", "admin")
	if _, err := a.Password(t.Context(), "alice", "alice-password"); !errors.Is(err, ErrCredentials) {
		t.Errorf("an agent signed in through a directory: %v", err)
	}

	t.Run("tokens", func(t *testing.T) {
		id, err := a.SignIn(t.Context(), "", "alice", "alice-password")
		if err != nil {
			t.Fatal(err)
		}
		if id.Origin.Provider != "corp" || id.Origin.UserID != "uid=alice,ou=people,"+suffix {
			t.Errorf("origin %+v", id.Origin)
		}
		tokens, err := a.Issue(t.Context(), id, "http://x")
		if err != nil {
			t.Fatal(err)
		}
		groups := func() string {
			t.Helper()
			if tokens, err = a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); err != nil {
				return err.Error()
			}
			who, err := a.Bearer(t.Context(), tokens.Access)
			if err != nil {
				return err.Error()
			}
			return strings.Join(append([]string{who.User}, who.Groups...), " ")
		}
		if got := groups(); got != "Alice ops system:users" {
			t.Errorf("after a refresh: %s", got)
		}
		s.change(t, func(c *ldap.Conn) error {
			m := ldap.NewModifyRequest("cn=ops,ou=groups,"+suffix, nil)
			m.Delete("member", []string{"uid=alice,ou=people," + suffix})
			return c.Modify(m)
		})
		if got := groups(); got != "Alice system:users" {
			t.Errorf("after leaving a group: %s", got)
		}
		good := tokens
		def, _ := config.Get(a.opts.Config.Snapshot(), config.AuthProviders, "", "corp")
		broken := *def
		broken.Directory = &resource.Directory{Servers: []resource.DirectoryServer{s.server(func(d *resource.DirectoryServer) {
			d.Port, d.Security = freePort(t), "insecure"
		})}}
		putProvider(t, a, &broken)
		if got := groups(); !strings.Contains(got, ErrUnavailable.Error()) {
			t.Errorf("while the directory is down: %s", got)
		}
		if who, err := a.Bearer(t.Context(), good.Access); err != nil || who.User != "Alice" {
			t.Errorf("the token while the directory is down: %+v, %v", who, err)
		}
		putProvider(t, a, def)
		tokens = good
		if got := groups(); got != "Alice system:users" {
			t.Errorf("after the directory was down: %s", got)
		}
		s.change(t, func(c *ldap.Conn) error { return c.Del(ldap.NewDelRequest("uid=alice,ou=people,"+suffix, nil)) })
		if got := groups(); got != ErrSignInOver.Error() {
			t.Errorf("after the user was deleted: %s", got)
		}
	})

	t.Run("guesses", func(t *testing.T) {
		a := withDirectory(t, resource.LDAPType, nil, s.server(nil))
		wrong := 0
		for i := range 20 {
			_, err := a.SignIn(t.Context(), "192.0.2.1", "bob", strings.Repeat("x", i+1))
			var guessing *GuessingError
			if errors.As(err, &guessing) {
				break
			}
			if wrong++; wrong == 20 {
				t.Error("a directory's user can be guessed without end")
			}
		}
		if id, err := a.SignIn(t.Context(), "192.0.2.2", "bob", "bob-password"); err != nil {
			t.Errorf("from elsewhere: %+v, %v", id, err)
		}
		for i := range 16 { // a right password resets the count
			password := "bob-password"
			if i%4 != 3 {
				password = strings.Repeat("y", i+1)
			}
			if _, err := a.SignIn(t.Context(), "192.0.2.4", "bob", password); (err == nil) != (i%4 == 3) || err != nil && !errors.Is(err, ErrCredentials) {
				t.Fatalf("attempt %d: %v", i, err)
			}
		}
		for range 20 {
			if _, err := a.SignIn(t.Context(), "192.0.2.3", "bob", "bob-password"); err != nil {
				t.Fatalf("the right password, again and again: %v", err)
			}
		}
	})
}

// TestLDAPGroups: prefixes, allowed groups, groups of names and groups of groups.
func TestLDAPGroups(t *testing.T) {
	s := startSlapd(t, true)
	nested := func(d *resource.DirectoryServer) {
		d.GroupSearch.ObjectClass, d.IncludeNestedGroups = "group", true
	}
	for name, tc := range map[string]struct {
		change func(*resource.Directory)
		server func(*resource.DirectoryServer)
		want   string
	}{
		"prefixes": {
			change: func(d *resource.Directory) { d.GroupsPrefix, d.UsernamePrefix = "corp", "corp" },
			want:   "corp:Alice corp:ops corp:system:agents",
		},
		"allowed":        {change: func(d *resource.Directory) { d.AllowedGroups = []string{"other"} }, want: "Alice"},
		"allowed prefix": {change: func(d *resource.Directory) { d.GroupsPrefix, d.AllowedGroups = "x", []string{"x:ops"} }, want: "Alice x:ops"},
		"allowed plain":  {change: func(d *resource.Directory) { d.GroupsPrefix, d.AllowedGroups = "x", []string{"ops"} }, want: "Alice x:ops"},
		"no groups":      {server: func(d *resource.DirectoryServer) { d.GroupSearch.BaseDN = "ou=empty," + suffix }, want: "Alice"},
		"not nested":     {server: func(d *resource.DirectoryServer) { d.GroupSearch.ObjectClass = "group" }, want: "Alice inner (1)"},
		"nested":         {server: nested, want: "Alice inner (1) outer outermost"},
		"posix": {
			server: func(d *resource.DirectoryServer) {
				d.GroupSearch.ObjectClass, d.GroupSearch.Attribute = "posixGroup", "memberUid"
			},
			want: "Alice unix",
		},
		"anonymous":            {server: func(d *resource.DirectoryServer) { d.Binding = nil }, want: "Alice ops"},
		"wrong account":        {server: func(d *resource.DirectoryServer) { d.Binding.Password = "x" }, want: "unavailable"},
		"wrong base of people": {server: func(d *resource.DirectoryServer) { d.UserSearch.BaseDN = "ou=none," + suffix }, want: "wrong"},
		"wrong base of groups": {server: func(d *resource.DirectoryServer) { d.GroupSearch.BaseDN = "ou=none," + suffix }, want: "unavailable"},
		"name from elsewhere":  {server: func(d *resource.DirectoryServer) { d.UserSearch.Attribute = "sAMAccountName" }, want: "Alice ops"},
	} {
		t.Run(name, func(t *testing.T) {
			a := withDirectory(t, resource.LDAPType, tc.change, s.server(tc.server))
			if got := in(t, a, "alice", "alice-password"); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestLDAPTLS: TLS refuses what it must and nothing else.
func TestLDAPTLS(t *testing.T) {
	s := startSlapd(t, true)
	stranger := testcert.New(t, "stranger")
	client := s.ca.Issue(t, []string{"lapwing"}, nil)
	for name, tc := range map[string]struct {
		server func(*resource.DirectoryServer)
		want   string
	}{
		"tls":                    {want: "Alice ops"},
		"starttls":               {server: func(d *resource.DirectoryServer) { d.Security, d.Port = "starttls", s.port }, want: "Alice ops"},
		"plain":                  {server: func(d *resource.DirectoryServer) { d.Security, d.Port = "insecure", s.port }, want: "Alice ops"},
		"another authority":      {server: func(d *resource.DirectoryServer) { d.TrustedCAFile = stranger.File }, want: "unavailable"},
		"system's authorities":   {server: func(d *resource.DirectoryServer) { d.TrustedCAFile = "" }, want: "unavailable"},
		"another name":           {server: func(d *resource.DirectoryServer) { d.Host = "127.0.0.1" }, want: "unavailable"},
		"starttls, another name": {server: func(d *resource.DirectoryServer) { d.Security, d.Port, d.Host = "starttls", s.port, "127.0.0.1" }, want: "unavailable"},
		"any certificate": {
			server: func(d *resource.DirectoryServer) { d.TrustedCAFile, d.Host, d.Insecure = "", "127.0.0.1", true }, want: "Alice ops",
		},
		"client certificate": {
			server: func(d *resource.DirectoryServer) { d.ClientCertFile, d.ClientKeyFile = client.Cert, client.Key }, want: "Alice ops",
		},
		"no such file":     {server: func(d *resource.DirectoryServer) { d.TrustedCAFile = "/nowhere" }, want: "unavailable"},
		"tls to plain":     {server: func(d *resource.DirectoryServer) { d.Port = s.port }, want: "unavailable"},
		"plain to tls":     {server: func(d *resource.DirectoryServer) { d.Security = "insecure" }, want: "unavailable"},
		"nobody listening": {server: func(d *resource.DirectoryServer) { d.Port = freePort(t) }, want: "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			a := withDirectory(t, resource.LDAPType, nil, s.server(func(d *resource.DirectoryServer) {
				d.GroupSearch.ObjectClass = "groupOfNames"
				if tc.server != nil {
					tc.server(d)
				}
			}))
			if got := in(t, a, "alice", "alice-password"); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			// A known user needs no directory.
			if got := in(t, a, "admin", agentPassword); got != "admin cluster-admins" {
				t.Errorf("a user of our own: %s", got)
			}
			if got := in(t, a, "agent", "wrong"); got != "wrong" {
				t.Errorf("a user of our own with a wrong password: %s", got)
			}
		})
	}
}

// TestLDAPServers: the next server is asked when one is down or does not know the user, and a wrong password counts
// once.
func TestLDAPServers(t *testing.T) {
	s := startSlapd(t, true)
	r := s.relay(t, nil)
	plain := func(d *resource.DirectoryServer) { d.Security, d.Port, d.Host = "insecure", r.port, "127.0.0.1" }
	down := s.server(func(d *resource.DirectoryServer) { plain(d); d.Port = freePort(t) })
	empty := s.server(func(d *resource.DirectoryServer) { plain(d); d.UserSearch.BaseDN = "ou=empty," + suffix })
	a := withDirectory(t, resource.LDAPType, nil, down, empty, s.server(plain), s.server(plain))
	if got := in(t, a, "bob", "bob-password"); got != "bob ops" {
		t.Errorf("at the third of four: %s", got)
	}
	bob := "uid=bob,ou=people," + suffix
	before := r.bound(bob)
	if got := in(t, a, "bob", "wrong"); got != "unavailable" { // the first may know the user
		t.Errorf("with a wrong password: %s", got)
	}
	if n := r.bound(bob) - before; n != 1 {
		t.Errorf("a wrong password was tried %d times at two copies, want 1", n)
	}

	// A server that accepts connections and does not answer.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mute := s.server(func(d *resource.DirectoryServer) { plain(d); d.Port = l.Addr().(*net.TCPAddr).Port })
	a = withDirectory(t, resource.LDAPType, nil, mute)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := a.SignIn(ctx, "", "bob", "bob-password"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("at a mute server: %v", err)
	}
}

// TestActiveDirectory: accounts that are disabled, and principal names.
func TestActiveDirectory(t *testing.T) {
	s := startSlapd(t, false)
	alice, bob := "uid=alice,ou=people,"+suffix, "uid=bob,ou=people,"+suffix
	r := s.relay(t, map[string]string{
		"alice@example.org": alice, "bob@example.org": bob, "bob@other.example": bob, "dave@example.org": "uid=dave,ou=people," + suffix,
		// The principal name for the bind and the one in the directory may belong to different people.
		"alice@other.example": alice,
	})
	server := func(change func(*resource.DirectoryServer)) resource.DirectoryServer {
		return s.server(func(d *resource.DirectoryServer) {
			d.Security, d.Port, d.Host, d.IncludeNestedGroups = "insecure", r.port, "127.0.0.1", true
			if change != nil {
				change(d)
			}
		})
	}
	a := withDirectory(t, resource.ADType, nil, server(nil))
	expect := func(name, password, want string) {
		t.Helper()
		if got := in(t, a, name, password); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	expect("alice", "alice-password", "Alice inner (1) outer outermost")
	expect("dave", "dave-password", "wrong")

	a = withDirectory(t, resource.ADType, nil, server(func(d *resource.DirectoryServer) { d.DefaultUPNDomain = "example.org" }))
	expect("alice", "alice-password", "Alice inner (1) outer outermost")
	expect("alice@example.org", "alice-password", "Alice inner (1) outer outermost")
	expect("alice", "bob-password", "wrong")
	expect("dave", "dave-password", "wrong")
	expect("alice@other.example", "alice-password", "wrong") // the entry is bob's, the password is not
	expect("alice@other.example", "bob-password", "wrong")

	// Without an account for searches, groups stay until the next sign-in.
	s = startSlapd(t, true)
	r = s.relay(t, map[string]string{"alice@example.org": alice})
	a = withDirectory(t, resource.ADType, nil, server(func(d *resource.DirectoryServer) {
		d.DefaultUPNDomain, d.Binding, d.Port = "@example.org", nil, r.port
	}))
	id, err := a.SignIn(t.Context(), "", "alice", "alice-password")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := a.Issue(t.Context(), id, "http://x")
	if err != nil {
		t.Fatal(err)
	}
	s.change(t, func(c *ldap.Conn) error { return c.Del(ldap.NewDelRequest("cn=outermost,ou=groups,"+suffix, nil)) })
	if tokens, err = a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); err != nil {
		t.Fatal(err)
	}
	who, err := a.Bearer(t.Context(), tokens.Access)
	if err != nil || !slices.Equal(who.Groups, []string{"inner (1)", "outer", "outermost", "system:users"}) {
		t.Errorf("after a refresh: %+v, %v", who, err)
	}
}

// TestDirectoryForgivesItsOwnGuess: a directory's user who signs in repeatedly does not erase the wrong guesses of its
// address.
func TestDirectoryForgivesItsOwnGuess(t *testing.T) {
	s := startSlapd(t, false)
	a := withDirectory(t, resource.LDAPType, nil, s.server(nil))
	const address = "192.0.2.1"
	count := func() int {
		a.guesses.mu.Lock()
		defer a.guesses.mu.Unlock()
		return a.guesses.of(a.opts.Now(), a.guesses.guesser("", address))
	}
	for i := range 4 {
		if got := attempt(t, a, address, "nobody", strings.Repeat("x", i+1)); got != "wrong" {
			t.Fatal(got)
		}
	}
	for range 6 {
		if _, err := a.SignIn(t.Context(), address, "bob", "bob-password"); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n != 4 {
		t.Errorf("%d wrong guesses of the address are left, want 4", n)
	}
}

// TestOneCountOfAnEntry: a person has one count of wrong passwords for all names and all providers.
func TestOneCountOfAnEntry(t *testing.T) {
	s := startSlapd(t, true)
	bob := "uid=bob,ou=people," + suffix
	r := s.relay(t, map[string]string{"bob@example.org": bob, "bob@other.example": bob})
	server := func(change func(*resource.DirectoryServer)) resource.DirectoryServer {
		return s.server(func(d *resource.DirectoryServer) {
			d.Security, d.Port, d.Host, d.DefaultUPNDomain = "insecure", r.port, "127.0.0.1", "example.org"
			change(d)
		})
	}
	asked := func() int { return r.bound(bob) + r.bound("bob@example.org") + r.bound("bob@other.example") }
	for name, tc := range map[string]struct {
		change func(*resource.DirectoryServer)
		names  []string
	}{
		"with an account":    {func(*resource.DirectoryServer) {}, []string{"bob", "bob@other.example"}},
		"without an account": {func(d *resource.DirectoryServer) { d.Binding = nil }, []string{"bob", "bob@example.org", "bob@other.example"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := withDirectory(t, resource.ADType, nil, server(tc.change))
			putProvider(t, a, &resource.AuthProvider{Type: resource.ADType, Metadata: resource.ObjectMeta{Name: "again"},
				Directory: &resource.Directory{Servers: []resource.DirectoryServer{server(tc.change)}}})
			before := asked()
			for host := range 20 {
				for i, typed := range tc.names {
					_, _ = a.SignIn(t.Context(), fmt.Sprint("10.0.1.", host), typed, fmt.Sprint("guess ", host, i))
				}
			}
			if n := asked() - before; n != a.opts.DirectoryGuesses-a.opts.DirectoryGuesses/4 {
				t.Errorf("the directory was asked %d times", n)
			}
		})
	}
}
