package resource

import (
	"bytes"
	"errors"
	"fmt"
)

// ValidateEncodedEvent is Event.Validate for an encoded event. Its entity is left out: PeekEntity shows what there is to check of
// it. It allocates only for what few checks have: a cron schedule, thresholds and subdues.
func ValidateEncodedEvent(event []byte) error {
	var check, metrics, meta, id []byte
	for b := event; len(b) > 0; {
		f, n, err := nextField("Event", b)
		if err != nil {
			return err
		}
		b = b[n:]
		switch f.tag {
		case 3<<3 | 2:
			err = setOnce(&check, f)
		case 4<<3 | 2:
			err = setOnce(&metrics, f)
		case 5<<3 | 2:
			err = setOnce(&meta, f)
		case 6<<3 | 2:
			id = f.v
		case 8<<3 | 2:
			err = validateEncodedPipeline(f.v)
		}
		if err != nil {
			return err
		}
	}
	if err := checkEventID(id); err != nil {
		return err
	}
	if check == nil && metrics == nil {
		return errors.New("event must contain a check or metrics")
	}
	switch name, _, err := peekMeta(meta); {
	case err != nil:
		return err
	case len(name) > 0:
		return errNamedEvent
	}
	if check == nil {
		return nil
	}
	if err := validateEncodedCheck(check); err != nil {
		return fmt.Errorf("check is invalid: %w", err)
	}
	return nil
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

// validateEncodedCheck is Check.Validate for an encoded check.
func validateEncodedCheck(b []byte) error {
	var (
		meta, proxyName, requests, subdue, cron, format []byte
		publish                                         bool
		interval, lowFlap, highFlap                     uint32
		ttl, maxOutputSize                              int64
		subdues                                         int
	)
	for len(b) > 0 {
		f, n, err := nextField("Check", b)
		if err != nil {
			return err
		}
		b = b[n:]
		switch f.tag {
		case 4<<3 | 0:
			highFlap = uint32(f.x)
		case 5<<3 | 0:
			interval = uint32(f.x)
		case 6<<3 | 0:
			lowFlap = uint32(f.x)
		case 9<<3 | 0:
			publish = f.x != 0
		case 10<<3 | 2:
			if err = checkAssetName(f.v); err != nil {
				err = fmt.Errorf("asset's %w", err)
			}
		case 11<<3 | 2:
			if len(f.v) == 0 {
				err = errEmptySubscription
			}
		case 13<<3 | 2:
			proxyName = f.v
		case 16<<3 | 2:
			err = setOnce(&subdue, f)
		case 17<<3 | 2:
			cron = f.v
		case 18<<3 | 0:
			ttl = int64(f.x)
		case 20<<3 | 2:
			err = setOnce(&requests, f)
		case 35<<3 | 2:
			format = f.v
		case 37<<3 | 2:
			err = checkEnvVar(bytes.IndexByte(f.v, '='), len(f.v))
		case 38<<3 | 2:
			err = setOnce(&meta, f)
		case 39<<3 | 0:
			maxOutputSize = int64(f.x)
		case 47<<3 | 2:
			err = validateDecoded(f.v, new(MetricThreshold))
		case 48<<3 | 2:
			if err = validateDecoded(f.v, new(TimeWindowRepeated)); err != nil {
				err = fmt.Errorf("subdue %d invalid: %w", subdues, err)
			}
			subdues++
		}
		if err != nil {
			return err
		}
	}
	name, _, err := peekMeta(meta)
	if err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return fmt.Errorf("check name %w", err)
	}
	if publish {
		if len(cron) == 0 && interval < 1 {
			return errNoInterval
		}
		if err := checkSchedule(interval, string(cron)); err != nil {
			return err
		}
	}
	if err := checkTTL(ttl, interval); err != nil {
		return err
	}
	if len(proxyName) > 0 {
		if err := checkName(proxyName); err != nil {
			return fmt.Errorf("proxy entity name %w", err)
		}
	}
	if err := validateEncodedProxyRequests(requests); err != nil {
		return err
	}
	if len(format) > 0 && !validMetricFormat(format) {
		return errMetricFormat
	}
	if err := checkFlapping(lowFlap, highFlap); err != nil {
		return err
	}
	if maxOutputSize < 0 {
		return errOutputSize
	}
	if subdue != nil {
		return validateDecoded(subdue, new(TimeWindowWhen))
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

// validateEncodedProxyRequests does not look at the expressions, as ProxyRequests.Validate does not.
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

// validateDecoded is for parts of an event that are not worth rules of their own.
func validateDecoded(b []byte, m interface {
	UnmarshalProto([]byte) error
	Validate() error
}) error {
	if err := m.UnmarshalProto(b); err != nil {
		return err
	}
	return m.Validate()
}
