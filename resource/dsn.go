package resource

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ParseDSN parses the DSN of a PostgreSQL by a function of pgx: ParseConfig of pgconn, pgx or pgxpool. Everything that
// parses a DSN calls it, because its errors are shown to people who may not read the DSN: they are in words of its own,
// and have no part of the DSN. pgx leaves out passwords only where it finds them. A DSN is refused, too, if pgx would
// take a part of a password for a host or another name, which errors of connections have.
func ParseDSN[C any](dsn string, parse func(string) (C, error)) (config C, err error) {
	plain, err := pgconn.ParseConfig(dsn)
	reason := ""
	if err == nil {
		if reason = mistaken(dsn, plain); reason == "" {
			if config, err = parse(dsn); err == nil {
				return config, nil
			}
		}
	}
	if err != nil {
		reason = faultOfDSN(err)
	}
	var none C
	return none, fmt.Errorf("dsn cannot be used: %s", reason)
}

const neitherURLNorList = "it is neither a URL such as postgres://user:password@host/database nor a list such as " +
	"host=db dbname=events; in a URL, percent-encode special characters of the password"

// faultsOfDSN are pgx's words for what is wrong with a DSN, and ours if they are better.
var faultsOfDSN = []struct{ theirs, ours string }{
	{"unable to read CA file", "the file of sslrootcert cannot be read"},
	{"unable to add CA to cert pool", "the file of sslrootcert has no certificate"},
	{"unable to load system certificate pool", "the certificates of the system cannot be read"},
	{`both "sslcert" and "sslkey" are required`, "sslcert and sslkey need each other"},
	{"unable to read cert", "the file of sslcert cannot be read"},
	{"unable to read sslkey", "the file of sslkey cannot be read"},
	{"failed to decode sslkey", "the file of sslkey has no key"},
	{"unable to find sslpassword", "the key in the file of sslkey needs sslpassword"},
	{"unable to decrypt key", "sslpassword does not decrypt the key in the file of sslkey"},
	{"unable to load cert", "the files of sslcert and sslkey are no pair of certificate and key"},
	{"failed to read service", "the file or the name of the service is not found"},
	{"could not match", "there are neither as many ports as hosts nor one port"},
	{"cannot be greater than max_protocol_version", "min_protocol_version is above max_protocol_version"},
	{"sslmode is invalid", ""},
	{"invalid port", ""},
	{"invalid sslcertmode", ""},
	{"invalid connect_timeout", ""},
	{"unknown target_session_attrs", ""},
	{"invalid min_protocol_version", ""},
	{"invalid max_protocol_version", ""},
	{"unknown channel_binding", ""},
	{"invalid require_auth", ""},
	{"cannot parse statement_cache_capacity", ""},
	{"cannot parse description_cache_capacity", ""},
	{"invalid default_query_exec_mode", ""},
	{"cannot parse pool_", "a parameter that begins with pool_ is invalid"},
	{"pool_max_conns too small", ""},
}

// faultOfDSN says why pgx refuses a DSN.
func faultOfDSN(err error) string {
	text := err.Error()
	text = text[strings.LastIndexByte(text, '`')+1:] // the DSN is between backquotes
	for _, f := range faultsOfDSN {
		if !strings.Contains(text, f.theirs) {
			continue
		}
		reason := f.ours
		if reason == "" {
			reason = f.theirs
		}
		if file := new(fs.PathError); errors.As(err, &file) {
			reason += ": " + file.Err.Error() // without the path
		}
		return reason
	}
	return neitherURLNorList
}

var (
	keywordOfDSN = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	passwordIn   = regexp.MustCompile(`(?i)\b(password|passwd|pwd)\s*[=:]`)
)

// mistaken returns why a DSN that pgx accepts probably means something else; "" if it does not.
func mistaken(dsn string, c *pgconn.Config) string {
	_, rest, isURL := strings.Cut(dsn, "://")
	if isURL = isURL && (strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")); isURL {
		if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
			rest = rest[i+1:]
		}
		if strings.Contains(rest, "@") {
			return "in a URL, write @ and / of the password as %40 and %2F, and each other @ but the one before the host as %40"
		}
	}
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, h := range hosts {
		if !strings.HasPrefix(h, "/") && strings.ContainsAny(h, "=;@?&'\"\\ \t\r\n") {
			return "its host is no host name: in a list, separate host, user and others by spaces"
		}
	}
	values := append(hosts, c.User, c.Database)
	for key, value := range c.RuntimeParams {
		switch {
		case !keywordOfDSN.MatchString(key):
			return neitherURLNorList
		case passwordIn.MatchString(key + "="):
			return "the keyword of the password is password, in lower case"
		}
		values = append(values, value)
	}
	for _, v := range values {
		if passwordIn.MatchString(v) {
			return "another value has a password in it: in a list, separate them by spaces, and parameters of a URL by &"
		}
	}
	return ""
}
