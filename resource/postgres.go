package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// StoreAPIVersion is the API version of PostgresConfig.
const StoreAPIVersion = "store/v1"

const postgresType = "PostgresConfig"

// PostgresConfig says where the PostgreSQL is that gets a copy of events. Its JSON is always wrapped.
type PostgresConfig struct {
	Type       string       `json:"type"`
	APIVersion string       `json:"api_version"`
	Metadata   ObjectMeta   `json:"metadata"`
	Spec       PostgresSpec `json:"spec"`
}

// PostgresSpec has the fields of Sensu's commercial edition and the three retentions, which are lapwing's. Only DSN,
// PoolSize, MaxConnLifetime and the retentions have an effect: lapwing's writer forms batches by itself.
type PostgresSpec struct {
	DSN string `json:"dsn"` // a URL, or keywords with values
	// PoolSize is how many connections there may be at once for reports. 0 means the backend's default.
	PoolSize int `json:"pool_size"`
	// MaxConnLifetime is how long such a connection is used, as a Go duration. "" means no limit.
	MaxConnLifetime  string `json:"max_conn_lifetime"`
	MaxIdleConns     int    `json:"max_idle_conns"`
	BatchWorkers     int    `json:"batch_workers"`
	BatchBuffer      int    `json:"batch_buffer"`
	BatchSize        int    `json:"batch_size"`
	Strict           bool   `json:"strict"`
	EnableRoundRobin bool   `json:"enable_round_robin"`
	// How long PostgreSQL keeps events, changes of state and notifications, for ParseRetention. "" means the backend's
	// default.
	EventsRetention        string `json:"events_retention,omitempty"`
	ChangesRetention       string `json:"changes_retention,omitempty"`
	NotificationsRetention string `json:"notifications_retention,omitempty"`
}

// UnmarshalJSON reads a wrapped definition and fills in Sensu's defaults for fields that are absent.
func (p *PostgresConfig) UnmarshalJSON(b []byte) error {
	type plain PostgresConfig
	in := plain{Spec: PostgresSpec{MaxIdleConns: 2, BatchSize: 1}}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	switch {
	case in.Type != "" && in.Type != postgresType:
		return fmt.Errorf("type must be %s, not %q", postgresType, Short(in.Type))
	case in.APIVersion != "" && in.APIVersion != StoreAPIVersion:
		return fmt.Errorf("api_version must be %s, not %q", StoreAPIVersion, Short(in.APIVersion))
	}
	in.Type, in.APIVersion = postgresType, StoreAPIVersion
	*p = PostgresConfig(in)
	return nil
}

// Validate returns the reason why p is not acceptable, or nil. It accepts a placeholder as the dsn: WithSecrets replaces
// it, or refuses it.
func (p *PostgresConfig) Validate() error {
	if err := checkName(p.Metadata.Name); err != nil {
		return fmt.Errorf("provider name %w", err)
	}
	if p.Metadata.Namespace != "" {
		return errors.New("provider cannot have a namespace")
	}
	s := &p.Spec
	if s.DSN == "" {
		return errors.New("dsn must be set")
	}
	if s.DSN != Redacted {
		if _, err := ParseDSN(s.DSN, pgconn.ParseConfig); err != nil {
			return err
		}
	}
	counts := bound{0, math.MaxInt32}
	if err := checkNumbers(
		number{"pool_size", int64(s.PoolSize), counts},
		number{"max_idle_conns", int64(s.MaxIdleConns), counts},
		number{"batch_workers", int64(s.BatchWorkers), counts},
		number{"batch_buffer", int64(s.BatchBuffer), counts},
		number{"batch_size", int64(s.BatchSize), counts},
	); err != nil {
		return err
	}
	if s.MaxConnLifetime != "" {
		if d, err := time.ParseDuration(s.MaxConnLifetime); err != nil || d < 0 {
			return fmt.Errorf("max_conn_lifetime must be a duration such as 5m, not %q", Short(s.MaxConnLifetime))
		}
	}
	for _, r := range []struct{ field, text string }{
		{"events_retention", s.EventsRetention},
		{"changes_retention", s.ChangesRetention},
		{"notifications_retention", s.NotificationsRetention},
	} {
		if r.text == "" {
			continue
		}
		if _, err := ParseRetention(r.text); err != nil {
			return fmt.Errorf("%s %w", r.field, err)
		}
	}
	return nil
}

// Bounds of retentions. The longest is in days: a hundred years.
const (
	minRetention = time.Hour
	maxRetention = 36500
)

// ParseRetention parses a number of days, such as 90d, or a Go duration, such as 720h. 0 is for ever.
func ParseRetention(text string) (time.Duration, error) {
	d := time.Duration(-1)
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= maxRetention {
			d = time.Duration(n) * 24 * time.Hour
		}
	} else if parsed, err := time.ParseDuration(text); err == nil {
		d = parsed
	}
	if d != 0 && d < minRetention || d > maxRetention*24*time.Hour {
		return 0, fmt.Errorf("must be a time such as 720h or 90d, from 1h to %dd, or 0 for ever, not %q", maxRetention, Short(text))
	}
	return d, nil
}

// secrets has the whole dsn: there are too many ways to write a password in it to find each.
func (p *PostgresConfig) secrets(f func(s *secret)) {
	if p.Spec.DSN != "" {
		f(&secret{name: "dsn", text: &p.Spec.DSN, cover: wholeText})
	}
}

func (p *PostgresConfig) withOwnSecrets() *PostgresConfig {
	out := *p
	return &out
}

// Redacted returns p as users see it who may read but not change it.
func (p *PostgresConfig) Redacted() *PostgresConfig { return redacted(p, p.withOwnSecrets()) }

// WithSecrets works like Handler.WithSecrets.
func (p *PostgresConfig) WithSecrets(old *PostgresConfig) (*PostgresConfig, error) {
	out := p.withOwnSecrets()
	if old == nil {
		return out, keepSecrets(out, nil)
	}
	return out, keepSecrets(out, old.withOwnSecrets())
}
