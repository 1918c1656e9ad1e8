package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// Signer signs access tokens with a key that the operator provides, so that other programs can verify them with its
// public half. Tokens signed with the cluster's secret are valid too. It corresponds to Sensu's jwt-private-key-file
// and jwt-public-key-file.
type Signer struct {
	method  *jwt.SigningMethodECDSA
	private *ecdsa.PrivateKey
}

// ParseSigner reads the two halves of an elliptic curve key in PEM: P-256, P-384 or P-521.
func ParseSigner(privatePEM, publicPEM []byte) (*Signer, error) {
	private, err := jwt.ParseECPrivateKeyFromPEM(privatePEM)
	if err != nil {
		return nil, fmt.Errorf("read private key of tokens: %w", err)
	}
	public, err := jwt.ParseECPublicKeyFromPEM(publicPEM)
	if err != nil {
		return nil, fmt.Errorf("read public key of tokens: %w", err)
	}
	if !private.PublicKey.Equal(public) {
		return nil, errors.New("the private and the public key of tokens do not belong together")
	}
	s := &Signer{private: private}
	switch private.Curve {
	case elliptic.P256():
		s.method = jwt.SigningMethodES256
	case elliptic.P384():
		s.method = jwt.SigningMethodES384
	case elliptic.P521():
		s.method = jwt.SigningMethodES512
	default:
		return nil, fmt.Errorf("key of tokens is on curve %s: want P-256, P-384 or P-521", private.Curve.Params().Name)
	}
	return s, nil
}

// signAccess signs an access token.
func (a *Auth) signAccess(k *keys, c claims) (string, error) {
	if s := a.opts.Signer; s != nil {
		return jwt.NewWithClaims(s.method, c).SignedString(s.private)
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(k.access)
}

// parseAccess is parse for access tokens. The kind of a token's signature alone decides which key verifies it, so a
// public key is never used as a secret.
func (a *Auth) parseAccess(token string, k *keys) (*claims, error) {
	if c, err := parse(token, k.access); err == nil || a.opts.Signer == nil {
		return c, err
	}
	return parseWith(token, &a.opts.Signer.private.PublicKey, a.opts.Signer.method.Alg())
}
