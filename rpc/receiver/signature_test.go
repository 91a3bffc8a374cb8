package receiver

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func key(t *testing.T, id, seed string) Key {
	t.Helper()
	k, err := ParseKey(id, "whsec_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat(seed, 32)[:32])))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The example of the Standard Webhooks specification's reference libraries: what
// they sign, we sign.
func TestStandardVector(t *testing.T) {
	k, err := ParseKey("k", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	k.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got, want := h.Get(HeaderSignature), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestVerify(t *testing.T) {
	before, after, other := key(t, "k1", "a"), key(t, "k2", "b"), key(t, "k1", "c")
	v, err := NewVerifier(0, before, after)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name string
		key  Key
		at   time.Time
		do   func(h http.Header, body *string)
		want error
	}{
		{"the old key", before, now, nil, nil},
		{"the new key", after, now, nil, nil},
		{"at the tolerance", after, now.Add(-DefaultTolerance), nil, nil},
		{"a second signature, of a scheme to come", after, now, func(h http.Header, _ *string) { h.Set(HeaderSignature, "v9,AAAA "+h.Get(HeaderSignature)) }, nil},
		{"another secret", other, now, nil, ErrSignature},
		{"a key that is not known", key(t, "k3", "a"), now, nil, ErrSignature},
		{"too old", after, now.Add(-DefaultTolerance - time.Second), nil, ErrTimestamp},
		{"too new", after, now.Add(DefaultTolerance + time.Second), nil, ErrTimestamp},
		{"another body", after, now, func(_ http.Header, b *string) { *b += " " }, ErrSignature},
		{"another id", after, now, func(h http.Header, _ *string) { h.Set(HeaderID, "e2") }, ErrSignature},
		{"an old request with a new time", after, now.Add(-time.Hour), func(h http.Header, _ *string) { h.Set(HeaderTimestamp, fmt.Sprint(now.Unix())) }, ErrSignature},
		{"no signature", after, now, func(h http.Header, _ *string) { h.Del(HeaderSignature) }, ErrSignature},
		{"nothing", after, now, func(h http.Header, _ *string) { clear(h) }, ErrSignature},
		{"too many signatures", after, now, func(h http.Header, _ *string) {
			h.Set(HeaderSignature, strings.Repeat("v1,AAAA ", maxSignatures)+h.Get(HeaderSignature))
		}, ErrSignature},
	} {
		h, body := http.Header{}, "{}"
		c.key.Sign(h, "e1", c.at, []byte(body))
		if c.do != nil {
			c.do(h, &body)
		}
		id, err := v.Verify(h, []byte(body), now)
		if !errors.Is(err, c.want) || (err == nil) != (id == "e1") {
			t.Errorf("%s: %q, %v; want %v", c.name, id, err, c.want)
		}
	}
}

func TestKeys(t *testing.T) {
	if _, err := ParseKey("k", NewSecret()); err != nil {
		t.Errorf("a new secret: %v", err)
	}
	if a, b := NewSecret(), NewSecret(); a == b {
		t.Error("two new secrets are the same")
	}
	good := NewSecret()
	for _, c := range []struct{ id, secret string }{
		{"", good},
		{"a b", good},
		{strings.Repeat("k", MaxKeyID+1), good},
		{"k", good[len(secretPrefix):]},
		{"k", "whsec_!"},
		{"k", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, MinSecret-1))},
		{"k", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, MaxSecret+1))},
	} {
		if _, err := ParseKey(c.id, c.secret); err == nil || c.secret != "" && strings.Contains(err.Error(), c.secret) {
			t.Errorf("key %q: %v", c.id, err)
		}
	}
	k := key(t, "k1", "a")
	if s := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); s != "k1 k1 k1 k1" {
		t.Errorf("a key prints as %s", s)
	}
	for _, keys := range [][]Key{nil, {k, k}, {{ID: "k"}}, make([]Key, MaxKeys+1)} {
		if _, err := NewVerifier(0, keys...); err == nil {
			t.Errorf("a verifier of %v", keys)
		}
	}
	if _, err := NewVerifier(-1, k); err == nil {
		t.Error("a negative tolerance")
	}
}
