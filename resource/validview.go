package resource

import (
	"bytes"
	"fmt"
	"math"
)

// This file has the rules of Event.Validate for an encoded event, as far as its views show it. They come in another
// order. They allocate only for rare parts of a check: a cron schedule, thresholds and subdues.

// Validate returns the reason why an event is not acceptable, or nil. Validate its check and its entity by their own
// views.
func (v *EventView) Validate() error {
	if v.Entity == nil {
		return errNoEntity
	}
	if v.Check == nil && v.Metrics == nil {
		return errNothing
	}
	if v.broken != nil {
		return v.broken
	}
	switch name, _, err := peekMeta(v.meta); {
	case err != nil:
		return err
	case len(name) > 0:
		return errNamedEvent
	}
	if err := checkNumbers(number{"event timestamp", v.Timestamp, boundStamp}); err != nil {
		return err
	}
	return checkEventID(v.ID)
}

// Validate returns the reason why an event's entity is not acceptable, if it is not.
func (v *EntityView) Validate() error {
	if err := checkName(v.Name); err != nil {
		return fmt.Errorf("entity is invalid: entity name %w", err)
	}
	if err := checkName(v.Class); err != nil {
		return fmt.Errorf("entity is invalid: entity class %w", err)
	}
	if len(v.Namespace) == 0 {
		return fmt.Errorf("entity is invalid: %w", errNoNamespace)
	}
	if err := checkLength(len(v.Namespace), MaxName); err != nil {
		return fmt.Errorf("entity is invalid: namespace %w", err)
	}
	if err := checkNumbers(number{"entity last_seen", v.LastSeen, boundTime}); err != nil {
		return fmt.Errorf("entity is invalid: %w", err)
	}
	return nil
}

// Validate returns the reason why an event's check is not acceptable, if it is not.
func (v *CheckView) Validate() error {
	if err := v.validate(); err != nil {
		return fmt.Errorf("check is invalid: %w", err)
	}
	return nil
}

func (v *CheckView) validate() error {
	if err := checkName(v.Name); err != nil {
		return fmt.Errorf("check name %w", err)
	}
	if v.rules.publish {
		if len(v.rules.cron) == 0 && v.Interval < 1 {
			return errNoInterval
		}
		if err := checkSchedule(v.Interval, string(v.rules.cron)); err != nil {
			return err
		}
	}
	if err := checkTTL(v.TTL, v.Interval); err != nil {
		return err
	}
	if v.rules.broken != nil {
		return v.rules.broken
	}
	if len(v.ProxyEntityName) > 0 {
		if err := checkName(v.ProxyEntityName); err != nil {
			return fmt.Errorf("proxy entity name %w", err)
		}
	}
	if err := validateEncodedProxyRequests(v.rules.requests); err != nil {
		return err
	}
	if len(v.rules.format) > 0 && !validMetricFormat(v.rules.format) {
		return errMetricFormat
	}
	if err := checkFlapping(v.LowFlap, v.HighFlap); err != nil {
		return err
	}
	if err := checkLimits(v.Interval, v.Timeout, v.TTL, v.MaxOutputSize); err != nil {
		return err
	}
	err := checkNumbers(
		number{"check executed", v.Executed, boundTime}, number{"check issued", v.Issued, boundTime},
		number{"check last_ok", v.rules.lastOK, boundTime}, number{"check occurrences", v.rules.occurrences, boundCount},
		number{"check occurrences_watermark", v.rules.watermark, boundCount},
	)
	if err != nil {
		return err
	}
	if err := checkDuration("check duration", math.Float64frombits(v.rules.duration)); err != nil {
		return err
	}
	if v.rules.subdue != nil {
		return validateDecoded(v.rules.subdue, new(TimeWindowWhen))
	}
	return nil
}

// member validates one member of a list, and keeps the first error.
func (r *ruled) member(f rawField) {
	if r.broken != nil {
		return
	}
	switch f.tag >> 3 {
	case 10:
		if err := checkAssetName(f.v); err != nil {
			r.broken = fmt.Errorf("asset's %w", err)
		}
	case 11:
		r.broken = checkSubscription(len(f.v))
	case 24:
		r.broken = validateEncodedHistory(f.v)
	case 34:
		r.broken = validateEncodedHook(f.v)
	case 37:
		r.broken = checkEnvVar(bytes.IndexByte(f.v, '='), len(f.v))
	case 47:
		r.broken = validateDecoded(f.v, new(MetricThreshold))
	case 48:
		if err := validateDecoded(f.v, new(TimeWindowRepeated)); err != nil {
			r.broken = fmt.Errorf("subdue %d invalid: %w", r.subdues, err)
		}
		r.subdues++
	}
}

func validateEncodedPipeline(b []byte) error {
	var kind, version []byte
	for len(b) > 0 {
		f, n, err := nextField("ResourceReference", b)
		if err != nil {
			return err
		}
		b = b[n:]
		switch f.tag {
		case 2<<3 | 2:
			kind = f.v
		case 3<<3 | 2:
			version = f.v
		}
	}
	if string(version) != pipelineAPIVersion || string(kind) != pipelineType {
		return noPipeline(version, kind)
	}
	return nil
}

// validateEncodedHistory validates an entry of a check's history.
func validateEncodedHistory(b []byte) error {
	for len(b) > 0 {
		f, n, err := nextField("CheckHistory", b)
		if err != nil {
			return err
		}
		b = b[n:]
		if f.tag == 2<<3|0 {
			if err := checkNumbers(number{"check history executed", int64(f.x), boundTime}); err != nil {
				return err
			}
		}
	}
	return nil
}

// validateEncodedHook validates the result of a hook.
func validateEncodedHook(b []byte) error {
	for len(b) > 0 {
		f, n, err := nextField("Hook", b)
		if err != nil {
			return err
		}
		b = b[n:]
		switch f.tag {
		case 2<<3 | 1:
			err = checkDuration("hook duration", math.Float64frombits(f.x))
		case 3<<3 | 0:
			err = checkNumbers(number{"hook executed", int64(f.x), boundTime})
		case 4<<3 | 0:
			err = checkNumbers(number{"hook issued", int64(f.x), boundTime})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func validMetricFormat(format []byte) bool {
	for _, known := range metricFormats {
		if string(format) == known {
			return true
		}
	}
	return false
}

// validateEncodedProxyRequests does not check the expressions; nor does ProxyRequests.Validate.
func validateEncodedProxyRequests(b []byte) error {
	var p ProxyRequests
	for len(b) > 0 {
		f, n, err := nextField("ProxyRequests", b)
		if err != nil {
			return err
		}
		b = b[n:]
		switch f.tag {
		case 2<<3 | 0:
			p.Splay = f.x != 0
		case 3<<3 | 0:
			p.SplayCoverage = uint32(f.x)
		}
	}
	return p.Validate()
}

// validateDecoded decodes and validates rare parts of an event.
func validateDecoded(b []byte, m interface {
	UnmarshalProto([]byte) error
	Validate() error
}) error {
	if err := m.UnmarshalProto(b); err != nil {
		return err
	}
	return m.Validate()
}
