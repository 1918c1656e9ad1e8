package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/crypto/bcrypt"
)

// keyPair is a new key in PEM.
func keyPair(t *testing.T, curve elliptic.Curve) (private, public []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})
}

func TestSigner(t *testing.T) {
	plain, c := seeded(t)
	before := signIn(t, plain)
	for name, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		private, public := keyPair(t, curve)
		signer, err := ParseSigner(private, public)
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(Options{Config: plain.opts.Config, Now: c.now, HashCost: bcrypt.MinCost, Signer: signer})
		if err != nil {
			t.Fatal(err)
		}
		tokens := signIn(t, a)
		parsed, _, err := jwt.NewParser().ParseUnverified(tokens.Access, &claims{})
		if err != nil || parsed.Method.Alg() != name {
			t.Errorf("%s: signed with %v, %v", name, parsed.Method.Alg(), err)
		}
		// A program with the public half can verify it.
		verify, err := jwt.ParseECPublicKeyFromPEM(public)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseWith(tokens.Access, verify, name); err != nil {
			t.Errorf("%s: with the public key: %v", name, err)
		}
		if id, err := a.Bearer(t.Context(), tokens.Access); err != nil || id.User != "admin" {
			t.Errorf("%s: %v, %v", name, id, err)
		}
		if _, err := a.Bearer(t.Context(), before.Access); err != nil {
			t.Errorf("%s: a token of the cluster's secret: %v", name, err)
		}
		if _, err := plain.Bearer(t.Context(), tokens.Access); !errors.Is(err, ErrToken) {
			t.Errorf("%s: without the key: %v", name, err)
		}
		if _, err := a.Bearer(t.Context(), tokens.Refresh); !errors.Is(err, ErrToken) {
			t.Errorf("%s: a refresh token: %v", name, err)
		}
		// The public key must not work as a secret.
		forged, err := jwt.NewWithClaims(jwt.SigningMethodHS256, parsed.Claims).SignedString(public)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Bearer(t.Context(), forged); !errors.Is(err, ErrToken) {
			t.Errorf("%s: forged with the public key: %v", name, err)
		}
		if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, testIssuer); err != nil {
			t.Errorf("%s: refresh: %v", name, err)
		}
	}
}

func TestSignerRefuses(t *testing.T) {
	private, public := keyPair(t, elliptic.P256())
	_, other := keyPair(t, elliptic.P256())
	private224, public224 := keyPair(t, elliptic.P224())
	for want, pair := range map[string][2][]byte{
		"read private key":       {[]byte("none"), public},
		"read public key":        {private, private},
		"do not belong together": {private, other},
		"want P-256":             {private224, public224},
	} {
		if _, err := ParseSigner(pair[0], pair[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
