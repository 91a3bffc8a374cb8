package receiver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of a signed request.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
	HeaderKeyID     = "webhook-key-id"
)

// Bounds of keys and signatures.
const (
	// MaxKeys is how many keys may be active at once.
	MaxKeys = 8
	// MaxKeyID is the longest name of a key, in bytes.
	MaxKeyID = 64
	// MinSecret and MaxSecret are the bytes of a secret, without its base64.
	MinSecret = 24
	MaxSecret = 64
	// DefaultTolerance is how far a request's time may be from now.
	DefaultTolerance = 5 * time.Minute
	// maxSignatures bounds the signatures that one request may carry.
	maxSignatures = 8
)

const (
	secretPrefix  = "whsec_"
	schemePrefix  = "v1,"
	newSecretSize = 32
)

// What Verify refuses a request for.
var (
	// ErrSignature: no key that is known signed it, or it was changed.
	ErrSignature = errors.New("the signature does not verify")
	// ErrTimestamp: it was made too long ago, or by a clock that is ahead.
	ErrTimestamp = errors.New("the timestamp is out of tolerance")
)

// Key signs and verifies. It does not print its secret.
type Key struct {
	ID     string
	secret []byte
}

// String is the key's id.
func (k Key) String() string { return k.ID }

// GoString is the key's id.
func (k Key) GoString() string { return k.ID }

// ParseKey makes a key of its name and its secret, "whsec_" and base64.
func ParseKey(id, secret string) (Key, error) {
	if id == "" || len(id) > MaxKeyID || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Key{}, fmt.Errorf("key id is %.80q (allowed: 1 to %d printable ASCII characters without spaces)", id, MaxKeyID)
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || !strings.HasPrefix(secret, secretPrefix) || len(b) < MinSecret || len(b) > MaxSecret {
		return Key{}, fmt.Errorf("secret of key %q is not %s and %d to %d bytes in base64", id, secretPrefix, MinSecret, MaxSecret)
	}
	return Key{ID: id, secret: b}, nil
}

// NewSecret makes a random secret in the form that ParseKey reads.
func NewSecret() string {
	b := make([]byte, newSecretSize)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// Sign sets the headers that sign a request made at a time.
func (k Key) Sign(h http.Header, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, stamp)
	h.Set(HeaderKeyID, k.ID)
	h.Set(HeaderSignature, schemePrefix+base64.StdEncoding.EncodeToString(k.mac(id, stamp, body)))
}

func (k Key) mac(id, stamp string, body []byte) []byte {
	m := hmac.New(sha256.New, k.secret)
	_, _ = m.Write([]byte(id + "." + stamp + "."))
	_, _ = m.Write(body)
	return m.Sum(nil)
}

// Verifier verifies requests. It is safe for concurrent use.
type Verifier struct {
	keys      map[string]Key
	tolerance time.Duration
}

// NewVerifier takes the active keys, 1 to MaxKeys with different ids, and the
// tolerance; 0 means DefaultTolerance.
func NewVerifier(tolerance time.Duration, keys ...Key) (*Verifier, error) {
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	if tolerance < 0 {
		return nil, fmt.Errorf("tolerance is %s (allowed: 0 for %s, or more)", tolerance, DefaultTolerance)
	}
	if len(keys) == 0 || len(keys) > MaxKeys {
		return nil, fmt.Errorf("%d keys (allowed: 1 to %d)", len(keys), MaxKeys)
	}
	v := &Verifier{keys: map[string]Key{}, tolerance: tolerance}
	for _, k := range keys {
		if _, twice := v.keys[k.ID]; twice || len(k.secret) == 0 {
			return nil, fmt.Errorf("key %q is there twice, or was not made by ParseKey", k.ID)
		}
		v.keys[k.ID] = k
	}
	return v, nil
}

// Verify returns the id of a request that one of the keys signed within the
// tolerance of now. Its errors are ErrSignature and ErrTimestamp.
func (v *Verifier) Verify(h http.Header, body []byte, now time.Time) (id string, err error) {
	id, stamp := h.Get(HeaderID), h.Get(HeaderTimestamp)
	k, ok := v.keys[h.Get(HeaderKeyID)]
	if !ok {
		return "", fmt.Errorf("%w: %s is %.80q, which is no active key", ErrSignature, HeaderKeyID, h.Get(HeaderKeyID))
	}
	want, good := k.mac(id, stamp, body), false
	for i, s := range strings.Fields(h.Get(HeaderSignature)) {
		if i == maxSignatures {
			break
		}
		if text, isV1 := strings.CutPrefix(s, schemePrefix); isV1 {
			got, err := base64.StdEncoding.DecodeString(text)
			good = good || err == nil && hmac.Equal(got, want)
		}
	}
	if !good || id == "" {
		return "", fmt.Errorf("%w with key %q", ErrSignature, k.ID)
	}
	sec, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return "", fmt.Errorf("%w: %s is %.40q, no number of seconds", ErrTimestamp, HeaderTimestamp, stamp)
	}
	if d := now.Sub(time.Unix(sec, 0)); d.Abs() > v.tolerance {
		return "", fmt.Errorf("%w: it is %s from now (allowed: %s)", ErrTimestamp, d.Round(time.Second), v.tolerance)
	}
	return id, nil
}
