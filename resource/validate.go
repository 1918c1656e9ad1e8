package resource

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// The texts of the errors in this file are part of the API: clients show and compare them. The text of an answer is
// that of the first broken rule; answers to dry runs have them all (Mistakes).

var (
	errEmpty        = errors.New("must not be empty")
	errSpecialChars = errors.New("cannot contain spaces or special characters")
	errDots         = errors.New(`must not be "." or "..": it would mean another path`)
	errNoNamespace  = errors.New("namespace must be set")

	errNoEntity          = errors.New("event must contain an entity")
	errNothing           = errors.New("event must contain a check or metrics")
	errNamedEvent        = errors.New("events cannot be named")
	errNoInterval        = errors.New("check interval must be greater than or equal to 1")
	errEmptySubscription = errors.New("subscriptions cannot be empty strings")
	errMetricFormat      = errors.New("output metric format is not valid")
	errOutputSize        = errors.New("MaxOutputSize must be >= 0")
)

// text is a string of a definition or the bytes of an encoded event. The rules apply to both.
type text interface{ string | []byte }

// ValidName reports whether name may name a resource: up to 255 letters, digits, underscores, dots, dashes and colons.
func ValidName(name string) bool { return checkName(name) == nil }

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// checkChars returns an error if s is empty, longer than MaxName, or has a byte for which ok is false.
func checkChars[T text](s T, ok func(c byte) bool) error { return checkCharsUpTo(s, MaxName, ok) }

func checkCharsUpTo[T text](s T, limit int, ok func(c byte) bool) error {
	if len(s) == 0 {
		return errEmpty
	}
	if err := checkLength(len(s), limit); err != nil {
		return err
	}
	if isDots(s) {
		return errDots
	}
	for i := range len(s) {
		if !ok(s[i]) {
			return errSpecialChars
		}
	}
	return nil
}

// isDots reports whether s is "." or "..", which have a meaning in URLs.
func isDots[T text](s T) bool {
	return (len(s) == 1 || len(s) == 2) && s[0] == '.' && s[len(s)-1] == '.'
}

func checkName[T text](s T) error { return checkChars(s, isNameByte) }

func isNameByte(c byte) bool { return isWord(c) || c == '.' || c == '-' || c == ':' }

// checkUsername checks the name of a user: lower case only, no colons.
func checkUsername(s string) error {
	return checkChars(s, func(c byte) bool { return isWord(c) && !('A' <= c && c <= 'Z') || c == '.' || c == '-' })
}

// checkRoleName checks the name of a role or binding: at most one colon, with text on both sides.
func checkRoleName(s string) error {
	if err := checkLength(len(s), MaxName); err != nil {
		return err
	}
	return checkSubscriptionName(s)
}

// checkSubscriptionName checks a name with the same colons, for example an entity's subscription.
func checkSubscriptionName(s string) error {
	if err := checkCharsUpTo(s, maxSubscription, isNameByte); err != nil {
		return err
	}
	if strings.Count(s, ":") > 1 || strings.HasPrefix(s, ":") || strings.HasSuffix(s, ":") {
		return errSpecialChars
	}
	return nil
}

// Validate returns the reason why e is not acceptable, or nil.
func (e *Event) Validate() error {
	if e.Entity == nil {
		return errNoEntity
	}
	if !e.HasCheck() && !e.HasMetrics() {
		return errNothing
	}
	if err := e.Entity.Validate(); err != nil {
		return fmt.Errorf("entity is invalid: %w", err)
	}
	if e.HasCheck() {
		if err := e.Check.Validate(); err != nil {
			return fmt.Errorf("check is invalid: %w", err)
		}
	}
	for _, p := range e.Pipelines {
		if p.APIVersion != pipelineAPIVersion || p.Type != pipelineType {
			return noPipeline(p.APIVersion, p.Type)
		}
	}
	if e.Metadata.Name != "" {
		return errNamedEvent
	}
	if err := checkNumbers(number{"event timestamp", e.Timestamp, boundStamp}); err != nil {
		return err
	}
	return checkEventID(e.ID)
}

func noPipeline[T text](version, kind T) error {
	return fmt.Errorf("pipeline reference is invalid: resource type not capable of acting as a pipeline: %s.%s", version, kind)
}

func checkEventID(id []byte) error {
	if len(id) != 0 && len(id) != 16 {
		return fmt.Errorf("invalid event id: %d bytes, must be 16", len(id))
	}
	return nil
}

// Validate returns the reason why e is not acceptable, or nil.
func (e *Entity) Validate() error {
	if err := checkNumbers(number{"entity last_seen", e.LastSeen, boundTime}); err != nil {
		return err
	}
	return validateEntity(&e.Metadata, e.EntityClass, e.DependsOn, e.TTL)
}

// Validate returns the reason why e is not acceptable, or nil.
func (e *EntityConfig) Validate() error {
	for _, s := range e.Subscriptions {
		if err := checkLength(len(s), maxSubscription); err != nil {
			return fmt.Errorf("subscription %w", err)
		}
	}
	return validateEntity(&e.Metadata, e.EntityClass, e.DependsOn, e.TTL)
}

func validateEntity(meta *ObjectMeta, class string, dependsOn []string, ttl int64) error {
	if err := checkName(meta.Name); err != nil {
		return fmt.Errorf("entity name %w", err)
	}
	if err := checkName(class); err != nil {
		return fmt.Errorf("entity class %w", err)
	}
	if meta.Namespace == "" {
		return errNoNamespace
	}
	if err := checkLength(len(meta.Namespace), MaxName); err != nil {
		return fmt.Errorf("namespace %w", err)
	}
	if err := checkNumbers(number{"entity ttl", ttl, boundTTL}); err != nil {
		return err
	}
	return checkDependencies(dependsOn)
}

// Validate returns the reason why c is not acceptable, or nil. Every check of a valid definition is valid.
func (c *Check) Validate() error {
	if err := checkName(c.Metadata.Name); err != nil {
		return fmt.Errorf("check name %w", err)
	}
	if c.Publish {
		if c.Cron == "" && c.Interval < 1 {
			return errNoInterval
		}
		if err := checkSchedule(c.Interval, c.Cron); err != nil {
			return err
		}
	}
	if err := c.checkResult(); err != nil {
		return err
	}
	return (&checkRules{
		interval:         c.Interval,
		timeout:          c.Timeout,
		ttl:              c.TTL,
		assets:           c.RuntimeAssets,
		subscriptions:    c.Subscriptions,
		proxyEntityName:  c.ProxyEntityName,
		proxyRequests:    c.ProxyRequests,
		metricFormat:     c.OutputMetricFormat,
		metricThresholds: c.OutputMetricThresholds,
		lowFlap:          c.LowFlapThreshold,
		highFlap:         c.HighFlapThreshold,
		envVars:          c.EnvVars,
		maxOutputSize:    c.MaxOutputSize,
		subdue:           c.Subdue,
		subdues:          c.Subdues,
	}).validate()
}

// checkResult checks the numbers of a result, which a definition does not have.
func (c *Check) checkResult() error {
	err := checkNumbers(
		number{"check executed", c.Executed, boundTime}, number{"check issued", c.Issued, boundTime},
		number{"check last_ok", c.LastOK, boundTime}, number{"check occurrences", c.Occurrences, boundCount},
		number{"check occurrences_watermark", c.OccurrencesWatermark, boundCount},
	)
	if err != nil {
		return err
	}
	if err := checkDuration("check duration", c.Duration); err != nil {
		return err
	}
	for i := range c.History {
		if err := checkNumbers(number{"check history executed", c.History[i].Executed, boundTime}); err != nil {
			return err
		}
	}
	for i := range c.Hooks {
		h := &c.Hooks[i]
		if err := checkDuration("hook duration", h.Duration); err != nil {
			return err
		}
		if err := checkNumbers(number{"hook executed", h.Executed, boundTime}, number{"hook issued", h.Issued, boundTime}); err != nil {
			return err
		}
	}
	return nil
}

// Validate returns the reason why c is not acceptable, or nil. It is as strict as Check.Validate: otherwise a
// definition could be accepted whose events are all refused.
func (c *CheckConfig) Validate() error {
	var wrong mistakes
	wrong.add("metadata.name", prefixed("check name", checkName(c.Metadata.Name)))
	if c.Cron == "" && c.Interval < 1 {
		wrong.add("interval", &Mistake{
			Err:   errors.New("check interval must be greater than 0 or a valid cron schedule must be provided"),
			Short: "it needs an interval greater than 0, or a cron schedule",
		})
	}
	if err := checkSchedule(c.Interval, c.Cron); err != nil {
		wrong.add("cron", err)
	} else {
		wrong.add("cron", checkEvery(c.Cron))
	}
	// Only in definitions: a result of an older definition must not be lost.
	for _, n := range []number{
		{"check low_flap_threshold", int64(c.LowFlapThreshold), boundPercent},
		{"check high_flap_threshold", int64(c.HighFlapThreshold), boundPercent},
	} {
		wrong.add("", checkNumbers(n))
	}
	if c.Metadata.Namespace == "" {
		wrong.add("metadata.namespace", errNoNamespace)
	}
	wrong.add("depends_on", checkDependencies(c.DependsOn))
	wrong.add("fallback_pipeline", checkFallback(c.FallbackPipeline, c.Pipelines))
	wrong.add("calendars", c.Calendars.validate())
	wrong.add("", (&checkRules{
		interval:         c.Interval,
		timeout:          c.Timeout,
		ttl:              c.TTL,
		assets:           c.RuntimeAssets,
		subscriptions:    c.Subscriptions,
		proxyEntityName:  c.ProxyEntityName,
		proxyRequests:    c.ProxyRequests,
		metricFormat:     c.OutputMetricFormat,
		metricThresholds: c.OutputMetricThresholds,
		lowFlap:          c.LowFlapThreshold,
		highFlap:         c.HighFlapThreshold,
		envVars:          c.EnvVars,
		maxOutputSize:    c.MaxOutputSize,
		subdue:           c.Subdue,
		subdues:          c.Subdues,
	}).validate())
	return wrong.asError()
}

// prefixed puts the name of what is wrong before an error.
func prefixed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %w", what, err)
}

// checkSchedule refuses two schedules, and a cron schedule that does not parse.
func checkSchedule(interval uint32, spec string) error {
	if spec == "" {
		return nil
	}
	if interval > 0 {
		return errors.New("must only specify either an interval or a cron schedule")
	}
	// The parser requires a blank after a time zone.
	if !strings.Contains(spec, " ") && (strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=")) {
		return cronMistake(spec, errors.New("no schedule after the time zone"))
	}
	if _, err := cron.ParseStandard(spec); err != nil {
		return cronMistake(spec, err)
	}
	return nil
}

func cronMistake(spec string, err error) error {
	return &Mistake{Err: fmt.Errorf("check cron string is invalid: %w", err), Short: fmt.Sprintf("cron %q: %v", Short(spec), err)}
}

// checkEvery bounds the time between two runs of a cron schedule with "@every". Schedules have whole seconds: a shorter
// duration would silently mean a second.
func checkEvery(spec string) error {
	_, every, ok := strings.Cut(spec, "@every ")
	if !ok {
		return nil
	}
	d, err := time.ParseDuration(strings.TrimSpace(every))
	if err != nil {
		return cronMistake(spec, err)
	}
	if d < time.Second || d > time.Duration(boundInterval.max)*time.Second {
		return fmt.Errorf("check cron %q is out of bounds, it must be between 1s and %ds", spec, boundInterval.max)
	}
	return nil
}

// checkRules has the fields that Check and CheckConfig both have rules for.
type checkRules struct {
	interval, timeout uint32
	ttl               int64
	assets            []string
	subscriptions     []string
	proxyEntityName   string
	proxyRequests     *ProxyRequests
	metricFormat      string
	metricThresholds  []MetricThreshold
	lowFlap, highFlap uint32
	envVars           []string
	maxOutputSize     int64
	subdue            *TimeWindowWhen
	subdues           []TimeWindowRepeated
}

// minTTL is the shortest TTL of a check, in seconds. A negative TTL means none.
const minTTL = 5

func (r *checkRules) validate() error {
	var wrong mistakes
	wrong.add("ttl", checkTTL(r.ttl, r.interval))
	wrong.add("runtime_assets", checkAssetNames(r.assets))
	for i, s := range r.subscriptions {
		if err := checkSubscription(len(s)); err != nil {
			wrong.add(item("subscriptions", i), err)
		}
	}
	if r.proxyEntityName != "" {
		wrong.add("proxy_entity_name", prefixed("proxy entity name", checkName(r.proxyEntityName)))
	}
	if r.proxyRequests != nil {
		wrong.add("proxy_requests", r.proxyRequests.Validate())
	}
	if r.metricFormat != "" && !slices.Contains(metricFormats, r.metricFormat) {
		wrong.add("output_metric_format", errMetricFormat)
	}
	wrong.add("low_flap_threshold", checkFlapping(r.lowFlap, r.highFlap))
	wrong.add("env_vars", checkEnvVars(r.envVars))
	wrong.add("", checkLimits(r.interval, r.timeout, r.ttl, r.maxOutputSize))
	for i := range r.metricThresholds {
		if err := r.metricThresholds[i].Validate(); err != nil {
			wrong.add(item("output_metric_thresholds", i), err)
		}
	}
	for i := range r.subdues {
		if err := r.subdues[i].Validate(); err != nil {
			wrong.add(item("subdues", i), fmt.Errorf("subdue %d invalid: %w", i, err))
		}
	}
	if r.subdue != nil {
		wrong.add("subdue", r.subdue.Validate())
	}
	return wrong.asError()
}

// item returns the path of an item of a list.
func item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// checkSubscription takes the length of a check's subscription.
func checkSubscription(length int) error {
	if length == 0 {
		return errEmptySubscription
	}
	if err := checkLength(length, maxSubscription); err != nil {
		return fmt.Errorf("subscription %w", err)
	}
	return nil
}

func checkLimits(interval, timeout uint32, ttl, maxOutput int64) error {
	if maxOutput < 0 {
		return InField("max_output_size", errOutputSize)
	}
	return checkNumbers(
		number{"check interval", int64(interval), boundInterval}, number{"check timeout", int64(timeout), boundInterval},
		number{"check ttl", ttl, boundTTL}, number{"check max_output_size", maxOutput, boundOutput},
	)
}

func checkTTL(ttl int64, interval uint32) error {
	if ttl > 0 && ttl <= int64(interval) {
		return errors.New("ttl must be greater than check interval")
	}
	if ttl > 0 && ttl < minTTL {
		return fmt.Errorf("minimum ttl is %d seconds", minTTL)
	}
	return nil
}

func checkFlapping(low, high uint32) error {
	if low != 0 && high != 0 && low >= high {
		return errors.New("invalid flap thresholds")
	}
	return nil
}

// The formats of check output that metrics are read from.
var metricFormats = []string{
	"nagios_perfdata", "graphite_plaintext", "opentsdb_line", "influxdb_line", "prometheus_text",
}

func checkAssetName[T text](s T) error {
	if len(s) == 0 {
		return errors.New("name cannot be empty")
	}
	if err := checkLength(len(s), MaxName); err != nil {
		return fmt.Errorf("name %w", err)
	}
	for i, begin := 0, 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '/' {
			continue
		}
		if isDots(s[begin:i]) {
			return fmt.Errorf("name %w", errDots)
		}
		begin = i + 1
	}
	err := checkChars(s, func(c byte) bool { return isWord(c) || c == '/' || c == '.' || c == '-' || c == ':' })
	if err != nil {
		return errors.New("name may only contain letters, forward slashes, underscores, dashes and numbers")
	}
	return nil
}

func checkEnvVars(vars []string) error {
	for i, v := range vars {
		if err := checkEnvVar(strings.IndexByte(v, '='), len(v)); err != nil {
			return InField(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

// checkEnvVar takes the index of a variable's equals sign, and the variable's length.
func checkEnvVar(equals, length int) error {
	if equals < 1 || equals == length-1 {
		return errors.New("environment variables must be of the form FOO=BAR")
	}
	return nil
}

// Validate returns the reason why p is not acceptable, or nil.
func (p *ProxyRequests) Validate() error {
	if p.SplayCoverage > 100 {
		return errors.New("proxy request splay coverage must be between 0 and 100")
	}
	if p.Splay && p.SplayCoverage == 0 {
		return errors.New("proxy request splay coverage must be greater than 0 if splay is enabled")
	}
	return nil
}

// Validate returns the reason why t is not acceptable, or nil.
func (t *MetricThreshold) Validate() error {
	if err := checkName(t.Name); err != nil {
		return fmt.Errorf("metric threshold name %w", err)
	}
	for _, tag := range t.Tags {
		if err := checkName(tag.Name); err != nil {
			return fmt.Errorf("metric threshold tag name %w", err)
		}
		if tag.Value == "" {
			return fmt.Errorf("metric threshold tag value %w", errEmpty)
		}
	}
	if len(t.Thresholds) == 0 {
		return errors.New("metric threshold must have at least one rule")
	}
	for _, rule := range t.Thresholds {
		if rule.Min == "" && rule.Max == "" {
			return errors.New("metric threshold rule must have a min or a max")
		}
		for _, bound := range []string{rule.Min, rule.Max} {
			if bound == "" {
				continue
			}
			if _, err := strconv.ParseFloat(bound, 64); err != nil {
				return fmt.Errorf("metric threshold %q is not a number", bound)
			}
		}
	}
	return nil
}

// The periods at which a TimeWindowRepeated recurs.
var repeatPeriods = []string{
	"annually", "monthly", "weekly", "daily", "weekdays", "weekends",
	"sundays", "mondays", "tuesdays", "wednesdays", "thursdays", "fridays", "saturdays",
}

// Validate returns the reason why t is not acceptable, or nil.
func (t *TimeWindowRepeated) Validate() error {
	begin, err := time.Parse(time.RFC3339, t.Begin)
	if err != nil {
		return fmt.Errorf("invalid begin time format: %w", err)
	}
	end, err := time.Parse(time.RFC3339, t.End)
	if err != nil {
		return fmt.Errorf("invalid end time format: %w", err)
	}
	if !end.After(begin) {
		return errors.New("end time must be after begin time")
	}
	for _, period := range t.Repeat {
		if !slices.Contains(repeatPeriods, period) {
			return fmt.Errorf("invalid repeat period: %s", period)
		}
	}
	return nil
}

// Validate returns the reason why t is not acceptable, or nil.
func (t *TimeWindowWhen) Validate() error {
	d := &t.Days
	days := [][]TimeWindowTimeRange{
		d.All, d.Sunday, d.Monday, d.Tuesday, d.Wednesday, d.Thursday, d.Friday, d.Saturday,
	}
	for _, ranges := range days {
		for _, r := range ranges {
			for _, clock := range []string{r.Begin, r.End} {
				clock = strings.ToUpper(strings.ReplaceAll(clock, " ", ""))
				if _, err := time.Parse(time.Kitchen, clock); err != nil {
					return fmt.Errorf("subdue is invalid: %w", err)
				}
			}
		}
	}
	return nil
}

// Validate returns the reason why h is not acceptable, or nil.
func (h *Handler) Validate() error {
	var wrong mistakes
	wrong.add("metadata.name", prefixed("handler name", checkName(h.Metadata.Name)))
	switch h.Type {
	case "":
		wrong.add("type", errors.New("empty handler type"))
	case "pipe":
		if strings.TrimSpace(h.Command) == "" {
			wrong.add("command", errors.New("missing command"))
		}
	case "tcp", "udp":
		switch {
		case h.Socket == nil:
			wrong.add("socket", errors.New("tcp and udp handlers need a valid socket"))
		case h.Socket.Host == "":
			wrong.add("socket.host", errors.New("socket host undefined"))
		case h.Socket.Port == 0:
			wrong.add("socket.port", errors.New("socket port undefined"))
		}
	case "set":
	default:
		wrong.add("", h.validateKind())
	}
	if h.Metadata.Namespace == "" {
		wrong.add("metadata.namespace", errNoNamespace)
	}
	wrong.add("", h.validateDelivery())
	wrong.add("", checkNumbers(number{"handler timeout", int64(h.Timeout), boundInterval}))
	wrong.add("env_vars", checkEnvVars(h.EnvVars))
	return wrong.asError()
}

// Validate returns the reason why n is not acceptable, or nil.
func (n *Namespace) Validate() error {
	if err := checkName(n.Name); err != nil {
		return fmt.Errorf("namespace name %w", err)
	}
	return nil
}

// minPassword is the shortest password, in bytes.
const minPassword = 8

// Validate returns the reason why u is not acceptable, or nil. A user needs a password or its hash.
func (u *User) Validate() error {
	if err := checkUsername(u.Username); err != nil {
		return fmt.Errorf("username %w", err)
	}
	if u.Password == "" && u.PasswordHash == "" {
		return errors.New("a password or its hash is required")
	}
	if u.Password != "" && len(u.Password) < minPassword {
		return InField("password", fmt.Errorf("password length must be at least %d characters", minPassword))
	}
	return nil
}

// Validate returns the reason why r is not acceptable, or nil.
func (r *Role) Validate() error {
	if err := checkRoleName(r.Metadata.Name); err != nil {
		return fmt.Errorf("the Role name %w", err)
	}
	if r.Metadata.Namespace == "" {
		return errors.New("the Role namespace must be set")
	}
	return validateRules("Role", r.Rules)
}

// Validate returns the reason why r is not acceptable, or nil.
func (r *ClusterRole) Validate() error {
	if err := checkRoleName(r.Metadata.Name); err != nil {
		return fmt.Errorf("the ClusterRole name %w", err)
	}
	if r.Metadata.Namespace != "" {
		return errors.New("ClusterRole cannot have a namespace")
	}
	return validateRules("ClusterRole", r.Rules)
}

var verbs = []string{"get", "list", "create", "update", "delete", "*"}

func validateRules(kind string, rules []Rule) error {
	if len(rules) == 0 {
		return InField("rules", fmt.Errorf("a %s must have at least one rule", kind))
	}
	for i, rule := range rules {
		for _, verb := range rule.Verbs {
			if !slices.Contains(verbs, verb) {
				return InField(item("rules", i)+".verbs", fmt.Errorf("the verb %q is not valid", verb))
			}
		}
	}
	return nil
}

// Validate returns the reason why b is not acceptable, or nil. The role it grants need not exist.
func (b *RoleBinding) Validate() error {
	if err := checkRoleName(b.Metadata.Name); err != nil {
		return fmt.Errorf("the RoleBinding name %w", err)
	}
	if b.Metadata.Namespace == "" {
		return errors.New("the RoleBinding namespace must be set")
	}
	return validateBinding("RoleBinding", b.RoleRef, b.Subjects)
}

// Validate returns the reason why b is not acceptable, or nil. The role it grants need not exist.
func (b *ClusterRoleBinding) Validate() error {
	if err := checkRoleName(b.Metadata.Name); err != nil {
		return fmt.Errorf("the ClusterRoleBinding name %w", err)
	}
	if b.Metadata.Namespace != "" {
		return errors.New("ClusterRoleBinding cannot have a namespace")
	}
	return validateBinding("ClusterRoleBinding", b.RoleRef, b.Subjects)
}

func validateBinding(kind string, ref RoleRef, subjects []Subject) error {
	if len(subjects) == 0 {
		return InField("subjects", fmt.Errorf("a %s must have at least one subject", kind))
	}
	if err := validateReference("roleRef", ref.Type, ref.Name, "ClusterRole", "Role"); err != nil {
		return InField("role_ref", err)
	}
	for i, s := range subjects {
		if err := validateReference("subject", s.Type, s.Name, "Group", "User"); err != nil {
			return InField(item("subjects", i), err)
		}
	}
	return nil
}

func validateReference(field, typ, name, either, or string) error {
	if typ != either && typ != or {
		return InField("type", fmt.Errorf("%s type %q is invalid, expected either %q or %q", field, typ, either, or))
	}
	if name == "" {
		return InField("name", fmt.Errorf("%s name for %s is required", field, typ))
	}
	return nil
}
