package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

const (
	// Prefix begins every token.
	Prefix = "coffer_"
	// EveryTenant is the tenant of a token that may act for each.
	EveryTenant = ledger.EveryTenant
	// MaxIDBytes bounds the id of a token.
	MaxIDBytes = 64
	// secretBytes is how much of a token is random, secretLen its length as text.
	secretBytes = 32
	secretLen   = (secretBytes*8 + 5) / 6
)

// Sum is the SHA-256 of a token's secret, as the secret stands in the token.
type Sum [sha256.Size]byte

// Entry is what the file says of one token.
type Entry struct {
	// ID names the token, to people and in logs.
	ID string
	// Tenant is the one that the token acts for, or EveryTenant.
	Tenant string
	Roles  Roles
	Sum    Sum
	// NotAfter is when the token ends; zero: never.
	NotAfter time.Time
	// Comment is for people.
	Comment string
}

// Everywhere reports whether the token may act for each tenant.
func (e *Entry) Everywhere() bool { return e.Tenant == EveryTenant }

// Expired reports whether the token's time is over.
func (e *Entry) Expired(now time.Time) bool { return !e.NotAfter.IsZero() && !now.Before(e.NotAfter) }

// New makes a token with a new secret, and the sum that goes into the file. The
// token is nowhere else: who loses it makes another.
func New(id string) (token string, sum Sum, err error) {
	if !legalID(id) {
		return "", Sum{}, fmt.Errorf("id is %s (allowed: %s)", shown(id), idRule)
	}
	var raw [secretBytes]byte
	_, _ = rand.Read(raw[:]) // it never fails
	secret := base64.RawURLEncoding.EncodeToString(raw[:])
	return Prefix + id + "_" + secret, sha256.Sum256([]byte(secret)), nil
}

// split takes a token apart. ok: it has the form of one.
func split(token string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(token, Prefix)
	if !ok {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	return id, secret, ok && len(secret) == secretLen && legalID(id)
}

// IDOf is the id that a token claims, empty where it has not the form of a token.
// It proves nothing; it is for logs.
func IDOf(token string) string {
	id, _, ok := split(token)
	if !ok {
		return ""
	}
	return id
}

// Set is the tokens of one file. It never changes, and is safe for concurrent use.
type Set struct {
	entries []Entry
	byID    map[string]*Entry
}

// Entries lists the tokens in the file's order. Do not change them.
func (s *Set) Entries() []Entry { return s.entries }

// Find is the entry of a token, nil where the token is none of the set. It does
// not look at the token's time. The cost is one look into a map and one SHA-256,
// and nothing is allocated.
func (s *Set) Find(token string) *Entry {
	id, secret, ok := split(token)
	if !ok {
		return nil
	}
	var text [secretLen]byte // a conversion would allocate
	copy(text[:], secret)
	sum := sha256.Sum256(text[:])
	e := s.byID[id]
	if e == nil || subtle.ConstantTimeCompare(sum[:], e.Sum[:]) != 1 {
		return nil
	}
	return e
}

const idRule = "1 to 64 small letters, digits and hyphens"

func legalID(id string) bool {
	if id == "" || len(id) > MaxIDBytes {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// checkTenant refuses what can be the name of no tenant.
func checkTenant(tenant string) error {
	if tenant == EveryTenant {
		return nil
	}
	c := ledger.Command{Op: ledger.OpFreeze, Budget: ledger.BudgetID{Tenant: tenant, Key: "-"}, ID: "-"}
	if r := c.Validate(); r != nil {
		return fmt.Errorf("tenant is %s (allowed: %s, or \"*\" for every tenant)", shown(tenant), r.Limit)
	}
	return nil
}

// shown is a value as a fault repeats it: not where it may hold a secret.
func shown(v string) string {
	if len(v) >= secretLen || strings.Contains(v, Prefix) {
		return fmt.Sprintf("a text of %d bytes", len(v))
	}
	return fmt.Sprintf("%q", v)
}
