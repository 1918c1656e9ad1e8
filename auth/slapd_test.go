package auth

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ber "github.com/go-asn1-ber/asn1-ber"
	"github.com/go-ldap/ldap/v3"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	suffix     = "dc=example,dc=org"
	rootDN     = "cn=root," + suffix
	searcherDN = "cn=searcher," + suffix
	ldapSecret = "secret123"
)

// directorySchema defines parts of Active Directory that OpenLDAP lacks, under the same names and numbers.
const directorySchema = `
attributetype ( 1.2.840.113556.1.4.221 NAME 'sAMAccountName' EQUALITY caseIgnoreMatch SUBSTR caseIgnoreSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.656 NAME 'userPrincipalName' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.8 NAME 'userAccountControl' EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE )
objectclass ( 1.2.840.113556.1.5.9.1 NAME 'adUser' SUP top AUXILIARY MAY ( sAMAccountName $ userPrincipalName $ userAccountControl ) )
objectclass ( 1.2.840.113556.1.5.8 NAME 'group' SUP top STRUCTURAL MUST cn MAY member )
`

// people: alice has two names and a capital in one, two carols share a name, dave is disabled in the sense of Active
// Directory, eve has no password. inner is in outer, outer in outermost, and outermost in inner again.
const people = `
dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: ou=empty,dc=example,dc=org
objectClass: organizationalUnit
ou: empty

dn: cn=searcher,dc=example,dc=org
objectClass: person
cn: searcher
sn: searcher
userPassword: secret123

dn: uid=alice,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
objectClass: adUser
cn: Alice (ops)
sn: A
uid: Alice
uid: al
sAMAccountName: Alice
userPrincipalName: alice@example.org
userAccountControl: 512
userPassword: alice-password

dn: uid=bob,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
objectClass: adUser
cn: Bob
sn: B
uid: bob
sAMAccountName: bob
userPrincipalName: alice@other.example
userAccountControl: 512
userPassword: bob-password

dn: cn=carol 1,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
cn: carol 1
sn: C
uid: carol
userPassword: carol-password

dn: cn=carol 2,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
cn: carol 2
sn: C
uid: carol
userPassword: carol-password

dn: uid=dave,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
objectClass: adUser
cn: Dave
sn: D
uid: dave
sAMAccountName: dave
userAccountControl: 514
userPassword: dave-password

dn: uid=eve,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
cn: Eve
sn: E
uid: eve

dn: cn=admin,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
cn: admin
sn: admin
uid: admin
userPassword: directory-admin

dn: cn=ops,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: ops
member: uid=alice,ou=people,dc=example,dc=org
member: uid=bob,ou=people,dc=example,dc=org

dn: cn=system:agents,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: system:agents
member: uid=alice,ou=people,dc=example,dc=org

dn: cn=unix,ou=groups,dc=example,dc=org
objectClass: posixGroup
cn: unix
gidNumber: 100
memberUid: Alice

dn: cn=inner (1),ou=groups,dc=example,dc=org
objectClass: group
cn: inner (1)
member: uid=alice,ou=people,dc=example,dc=org
member: cn=outermost,ou=groups,dc=example,dc=org

dn: cn=outer,ou=groups,dc=example,dc=org
objectClass: group
cn: outer
member: cn=inner (1),ou=groups,dc=example,dc=org

dn: cn=outermost,ou=groups,dc=example,dc=org
objectClass: group
cn: outermost
member: cn=outer,ou=groups,dc=example,dc=org
`

// slapd is a running OpenLDAP server.
type slapd struct {
	port, securePort int
	ca               *testcert.Authority
}

// startSlapd runs a server until the test ends. Searches need the searcher's account unless anonymous is set.
func startSlapd(t *testing.T, anonymous bool) *slapd {
	t.Helper()
	program := "/usr/sbin/slapd"
	if _, err := os.Stat(program); err != nil {
		t.Skip("slapd is not installed (Debian: apt-get install slapd)")
	}
	dir := t.TempDir()
	s := &slapd{port: freePort(t), securePort: freePort(t), ca: testcert.New(t, "directory")}
	cert := s.ca.Issue(t, []string{"localhost"}, nil)
	others := "none"
	if anonymous {
		others = "read"
	}
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if err := os.Mkdir(filepath.Join(dir, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	conf := write("slapd.conf", fmt.Sprintf(`
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
include /etc/ldap/schema/nis.schema
include %[1]s
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile %[2]s/pid
TLSCACertificateFile %[3]s
TLSCertificateFile %[4]s
TLSCertificateKeyFile %[5]s
TLSVerifyClient try
database mdb
suffix "%[6]s"
rootdn "%[7]s"
rootpw %[8]s
directory %[2]s/db
maxsize 8388608
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="%[9]s" read by %[10]s
`, write("directory.schema", directorySchema), dir, s.ca.File, cert.Cert, cert.Key, suffix, rootDN, ldapSecret, searcherDN,
		map[string]string{"none": "anonymous auth by * none", "read": "* read"}[others]))
	add := exec.Command("/usr/sbin/slapadd", "-q", "-f", conf, "-l", write("people.ldif", people))
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("fill directory: %v\n%s", err, out)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "-f", conf, "-d", "0", "-h", fmt.Sprintf("ldap://127.0.0.1:%d/ ldaps://127.0.0.1:%d/", s.port, s.securePort))
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", s.securePort), time.Second)
		if err == nil {
			conn.Close()
			return s
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("slapd ended: %v\n%s", err, log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// server is the definition of the server.
func (s *slapd) server(change func(*resource.DirectoryServer)) resource.DirectoryServer {
	d := resource.DirectoryServer{
		Host: "localhost", Port: s.securePort, TrustedCAFile: s.ca.File,
		Binding:     &resource.DirectoryBinding{UserDN: searcherDN, Password: ldapSecret},
		UserSearch:  resource.DirectorySearch{BaseDN: "ou=people," + suffix},
		GroupSearch: resource.DirectorySearch{BaseDN: "ou=groups," + suffix},
	}
	if change != nil {
		change(&d)
	}
	return d
}

// change modifies the directory as its owner.
func (s *slapd) change(t testing.TB, do func(*ldap.Conn) error) {
	t.Helper()
	c, err := ldap.DialURL(fmt.Sprintf("ldap://127.0.0.1:%d", s.port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Bind(rootDN, ldapSecret); err != nil {
		t.Fatal(err)
	}
	if err := do(c); err != nil {
		t.Fatal(err)
	}
}

// relay forwards to a directory: it counts binds, and lets people bind by principal names, as Active Directory does.
type relay struct {
	port  int
	mu    sync.Mutex // guards binds
	binds map[string]int
}

func (s *slapd) relay(t testing.TB, principals map[string]string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{port: l.Addr().(*net.TCPAddr).Port, binds: map[string]int{}}
	var running sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(client, s.port, principals) })
		}
	})
	return r
}

func (r *relay) serve(client net.Conn, port int, principals map[string]string) {
	defer client.Close()
	server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		client.Close()
	}()
	for {
		p, err := ber.ReadPacket(client)
		if err != nil {
			return
		}
		if len(p.Children) > 1 && p.Children[1].ClassType == ber.ClassApplication && p.Children[1].Tag == ldap.ApplicationBindRequest {
			request := p.Children[1]
			name, _ := request.Children[1].Value.(string)
			r.mu.Lock()
			r.binds[name]++
			r.mu.Unlock()
			if dn, ok := principals[strings.ToLower(name)]; ok {
				renamed := ber.Encode(ber.ClassApplication, ber.TypeConstructed, ldap.ApplicationBindRequest, nil, "Bind Request")
				renamed.AppendChild(request.Children[0])
				renamed.AppendChild(ber.NewString(ber.ClassUniversal, ber.TypePrimitive, ber.TagOctetString, dn, "User Name"))
				renamed.AppendChild(request.Children[2])
				message := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSequence, nil, "LDAP Request")
				message.AppendChild(p.Children[0])
				message.AppendChild(renamed)
				p = message
			}
		}
		if _, err := server.Write(p.Bytes()); err != nil {
			return
		}
	}
}

// bound returns how many binds used a name.
func (r *relay) bound(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.binds[name]
}
