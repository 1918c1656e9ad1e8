package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
)

// AuthAPIVersion is the API version of authentication providers.
const AuthAPIVersion = "authentication/v2"

// Types of AuthProvider.
const (
	LDAPType = "ldap"
	ADType   = "ad"
	OIDCType = "oidc"
)

// AuthProvider is a directory or an OpenID Connect provider whose users may sign in. Directory is set for the types
// ldap and ad, OIDC for oidc. Its JSON is always wrapped: {type, api_version, metadata, spec}.
type AuthProvider struct {
	Type      string
	Metadata  ObjectMeta
	Directory *Directory
	OIDC      *OIDC
}

// Directory is an LDAP directory: its people sign in with their names and passwords there.
type Directory struct {
	// Servers are asked in order until one knows the user.
	Servers []DirectoryServer `json:"servers"`
	// AllowedGroups limits which of a user's groups count. Empty means all.
	AllowedGroups []string `json:"allowed_groups"`
	// GroupsPrefix and UsernamePrefix are put before the names of groups and users, with a colon between.
	GroupsPrefix   string `json:"groups_prefix"`
	UsernamePrefix string `json:"username_prefix"`
}

// DirectoryServer says where a directory is, and how to find its people and groups.
type DirectoryServer struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	// Security is tls, starttls or insecure. With insecure any certificate is accepted.
	Security       string            `json:"security"`
	Insecure       bool              `json:"insecure"`
	TrustedCAFile  string            `json:"trusted_ca_file"`
	ClientCertFile string            `json:"client_cert_file"`
	ClientKeyFile  string            `json:"client_key_file"`
	Binding        *DirectoryBinding `json:"binding"` // nil for anonymous searches
	GroupSearch    DirectorySearch   `json:"group_search"`
	UserSearch     DirectorySearch   `json:"user_search"`
	// DefaultUPNDomain, for Active Directory only, makes people bind by their principal names. It is appended to names
	// without a domain.
	DefaultUPNDomain string `json:"default_upn_domain,omitempty"`
	// IncludeNestedGroups adds the groups that contain the user's groups.
	IncludeNestedGroups bool `json:"include_nested_groups,omitempty"`
}

// DirectoryBinding is the account that searches the directory.
type DirectoryBinding struct {
	UserDN   string `json:"user_dn"`
	Password string `json:"password"`
}

// DirectorySearch says which entries are people or groups, and which of their attributes to read.
type DirectorySearch struct {
	BaseDN        string `json:"base_dn"`
	Attribute     string `json:"attribute"` // for people the sign-in name, for groups the members
	NameAttribute string `json:"name_attribute"`
	ObjectClass   string `json:"object_class"`
}

// OIDC is an OpenID Connect provider: people sign in on its pages.
type OIDC struct {
	Server           string   `json:"server"` // the issuer's URL
	ClientID         string   `json:"client_id"`
	ClientSecret     string   `json:"client_secret"`
	RedirectURI      string   `json:"redirect_uri"`
	AdditionalScopes []string `json:"additional_scopes"`
	// DisableOfflineAccess requests no refresh token. A sign-in then ends with the provider's first token.
	DisableOfflineAccess bool   `json:"disable_offline_access"`
	GroupsClaim          string `json:"groups_claim"`
	GroupsPrefix         string `json:"groups_prefix"`
	UsernameClaim        string `json:"username_claim"` // "" for sub
	UsernamePrefix       string `json:"username_prefix"`
	Provider             string `json:"provider,omitempty"` // the provider's name for users
}

// authProviderJSON is the JSON of an AuthProvider.
type authProviderJSON struct {
	Type       string          `json:"type"`
	APIVersion string          `json:"api_version"`
	Metadata   ObjectMeta      `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
}

// MarshalJSON writes p wrapped, with its secrets. For users who may only read, use Redacted.
func (p AuthProvider) MarshalJSON() ([]byte, error) {
	var spec []byte
	var err error
	if p.OIDC != nil {
		out := *p.OIDC
		out.AdditionalScopes = notNil(out.AdditionalScopes)
		spec, err = json.Marshal(out)
	} else if p.Directory != nil {
		out := *p.Directory
		out.Servers, out.AllowedGroups = notNil(out.Servers), notNil(out.AllowedGroups)
		spec, err = json.Marshal(out)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(authProviderJSON{Type: p.Type, APIVersion: AuthAPIVersion, Metadata: p.Metadata, Spec: spec})
}

// UnmarshalJSON reads a wrapped provider and fills in the defaults of its type.
func (p *AuthProvider) UnmarshalJSON(b []byte) error {
	var in authProviderJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*p = AuthProvider{Type: in.Type, Metadata: in.Metadata}
	if in.APIVersion != "" && in.APIVersion != AuthAPIVersion {
		return fmt.Errorf("api_version must be %s, not %q", AuthAPIVersion, in.APIVersion)
	}
	var spec any
	switch in.Type {
	case LDAPType, ADType:
		p.Directory = &Directory{}
		spec = p.Directory
	case OIDCType:
		p.OIDC = &OIDC{}
		spec = p.OIDC
	default:
		return fmt.Errorf("type must be ldap, ad or oidc, not %q", in.Type)
	}
	if len(in.Spec) > 0 {
		if err := json.Unmarshal(in.Spec, spec); err != nil {
			return err
		}
	}
	if p.Directory != nil {
		for i := range p.Directory.Servers {
			p.Directory.Servers[i].complete(in.Type)
		}
	}
	return nil
}

// complete fills in the defaults of the provider's type.
func (s *DirectoryServer) complete(typ string) {
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&s.Security, "tls")
	if s.Port == 0 {
		s.Port = 389
		if s.Security == "tls" {
			s.Port = 636
		}
	}
	fill(&s.GroupSearch.Attribute, "member")
	fill(&s.GroupSearch.NameAttribute, "cn")
	fill(&s.UserSearch.ObjectClass, "person")
	if typ == ADType {
		fill(&s.GroupSearch.ObjectClass, "group")
		fill(&s.UserSearch.Attribute, "sAMAccountName")
		fill(&s.UserSearch.NameAttribute, "displayName")
		return
	}
	fill(&s.GroupSearch.ObjectClass, "groupOfNames")
	fill(&s.UserSearch.Attribute, "uid")
	fill(&s.UserSearch.NameAttribute, "cn")
}

// Validate returns the reason why p is not acceptable, or nil.
func (p *AuthProvider) Validate() error {
	err := checkChars(p.Metadata.Name, func(c byte) bool { return isWord(c) || c == '.' || c == '-' })
	switch {
	case err != nil:
		return fmt.Errorf("provider name %w", err)
	case p.Metadata.Namespace != "":
		return errors.New("authentication provider cannot have a namespace")
	case p.OIDC != nil:
		return p.OIDC.validate()
	case p.Directory != nil:
		return p.Directory.validate()
	}
	return errors.New("authentication provider must have a spec")
}

func (d *Directory) validate() error {
	if len(d.Servers) == 0 {
		return errors.New("servers must name at least one server")
	}
	for i := range d.Servers {
		if err := d.Servers[i].validate(); err != nil {
			return fmt.Errorf("servers[%d]: %w", i, err)
		}
	}
	return nil
}

func (s *DirectoryServer) validate() error {
	switch {
	case s.Host == "":
		return errors.New("host must be set")
	case s.Port < 1 || s.Port > 65535:
		return errors.New("port must be between 1 and 65535")
	case !slices.Contains([]string{"tls", "starttls", "insecure"}, s.Security):
		return fmt.Errorf("security must be tls, starttls or insecure, not %q", s.Security)
	case (s.ClientCertFile == "") != (s.ClientKeyFile == ""):
		return errors.New("client_cert_file and client_key_file must come together")
	case s.Binding != nil && (s.Binding.UserDN == "") != (s.Binding.Password == ""):
		return errors.New("binding must have a user_dn and a password, or neither")
	case s.Binding != nil && s.Binding.Password == Redacted:
		return errors.New("binding.password is the placeholder that is shown in its place")
	case s.UserSearch.BaseDN == "":
		return errors.New("user_search.base_dn must be set")
	case s.GroupSearch.BaseDN == "":
		return errors.New("group_search.base_dn must be set")
	}
	for _, name := range []struct{ field, value string }{
		{"user_search.attribute", s.UserSearch.Attribute},
		{"user_search.name_attribute", s.UserSearch.NameAttribute},
		{"user_search.object_class", s.UserSearch.ObjectClass},
		{"group_search.attribute", s.GroupSearch.Attribute},
		{"group_search.name_attribute", s.GroupSearch.NameAttribute},
		{"group_search.object_class", s.GroupSearch.ObjectClass},
	} {
		// The names become parts of a filter, in which other characters have a meaning.
		if checkChars(name.value, func(c byte) bool { return isWord(c) || c == '-' || c == '.' || c == ';' }) != nil {
			return fmt.Errorf("%s must be the name of an attribute or class, not %q", name.field, name.value)
		}
	}
	return nil
}

func (o *OIDC) validate() error {
	server, err := url.Parse(o.Server)
	switch {
	case err != nil || server.Host == "":
		return fmt.Errorf("server must be an absolute URL, not %q", o.Server)
	case server.Scheme != "https" && (server.Scheme != "http" || !isLoopback(server.Hostname())):
		return errors.New("server must be an https URL: its answers say who a user is")
	case o.ClientID == "":
		return errors.New("client_id must be set")
	case o.ClientSecret == Redacted:
		return errors.New("client_secret is the placeholder that is shown in its place")
	}
	if o.RedirectURI != "" {
		redirect, err := url.Parse(o.RedirectURI)
		if err != nil || redirect.Host == "" || redirect.Scheme != "https" && redirect.Scheme != "http" {
			return fmt.Errorf("redirect_uri must be an absolute URL, not %q", o.RedirectURI)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// clone returns a copy of p whose secrets can be changed.
func (p *AuthProvider) clone() *AuthProvider {
	out := *p
	if p.OIDC != nil {
		o := *p.OIDC
		out.OIDC = &o
	}
	if p.Directory != nil {
		d := *p.Directory
		d.Servers = slices.Clone(d.Servers)
		for i := range d.Servers {
			if b := d.Servers[i].Binding; b != nil {
				copied := *b
				d.Servers[i].Binding = &copied
			}
		}
		out.Directory = &d
	}
	return &out
}

// Redacted returns p with Redacted in place of its secrets.
func (p *AuthProvider) Redacted() *AuthProvider {
	out := p.clone()
	if o := out.OIDC; o != nil && o.ClientSecret != "" {
		o.ClientSecret = Redacted
	}
	if d := out.Directory; d != nil {
		for i := range d.Servers {
			if b := d.Servers[i].Binding; b != nil && b.Password != "" {
				b.Password = Redacted
			}
		}
	}
	return out
}

// WithSecrets returns p, which may hold placeholders of Redacted, with the secrets of old. A secret is filled in only
// where it goes to the same place as before. Otherwise a user could read it by having it sent elsewhere.
func (p *AuthProvider) WithSecrets(old *AuthProvider) *AuthProvider {
	out := p.clone()
	if o, was := out.OIDC, old.OIDC; o != nil && was != nil && o.ClientSecret == Redacted &&
		o.Server == was.Server && o.ClientID == was.ClientID {
		o.ClientSecret = was.ClientSecret
	}
	if out.Directory == nil || old.Directory == nil {
		return out
	}
	for i := range out.Directory.Servers {
		s := &out.Directory.Servers[i]
		if s.Binding == nil || s.Binding.Password != Redacted {
			continue
		}
		for j := range old.Directory.Servers {
			if was := &old.Directory.Servers[j]; was.Binding != nil && s.binds() == was.binds() {
				s.Binding.Password = was.Binding.Password
			}
		}
	}
	return out
}

// binds returns every setting that decides where the binding's password is sent.
func (s *DirectoryServer) binds() [6]string {
	return [6]string{
		s.Host, strconv.Itoa(s.Port), s.Security, strconv.FormatBool(s.Insecure), s.TrustedCAFile, s.Binding.UserDN,
	}
}
