package config

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
)

// Stored describes the bucket's stream to programs that read its files without the broker.
func Stored() blocks.Stream {
	return blocks.Stream{
		Name: streamName, Subject: subjectPrefix, Keyed: true, Valid: validStored,
		Live: func(headers []byte) bool { return !bytes.Contains(headers, []byte(operationHeader+":")) },
	}
}

// validStored returns an error if a stored message is visibly damaged. Its checksum does not cover where the key ends.
func validStored(key, headers, message []byte) error {
	kind, _, _, err := parseBucketKey(string(key))
	switch {
	case err != nil:
		return err
	case kind != secretKind && len(message) > 0 && !json.Valid(message):
		return errors.New("not a document")
	case len(message) == 0 && len(headers) == 0:
		return errors.New("empty")
	}
	return nil
}
