//go:build linux

package main

import (
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
)

// certificates are the files with which members trust each other. They are valid for years around the present, because
// clocks are set wrong.
type certificates struct {
	caFile  string
	members []testcert.Pair
}

// newCertificates makes an authority, and a certificate for each member.
func newCertificates(dir string, members int) (*certificates, error) {
	const year = 365 * 24 * time.Hour
	ca, err := testcert.Make(dir, "chaos", year)
	if err != nil {
		return nil, err
	}
	c := &certificates{caFile: ca.File}
	for i := range members {
		pair, err := ca.Sign([]string{memberName(i), memberAddr(i)}, year, nil)
		if err != nil {
			return nil, err
		}
		c.members = append(c.members, pair)
	}
	return c, nil
}
