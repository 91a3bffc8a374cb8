package event

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Event is one entry, with what its block and budget say about it. Its methods
// do not change it.
type Event struct {
	// Source names the installation that the event is of, as CheckSource allows;
	// empty for DefaultSource.
	Source string
	At     Position
	Bucket ledger.BucketID
	// Currency is the budget's.
	Currency string
	// Time is the block's, in milliseconds, and Writer the node that wrote it.
	Time   time.Time
	Writer string
	Entry  ledger.Entry
}

// DefaultSource is the Source of an installation that was given none.
const DefaultSource = "/coffer"

// maxSource bounds a Source in bytes.
const maxSource = 256

// CheckSource says whether a text can be a Source: a URI reference to which
// "/TENANT" is added to give the event's source. It names what is allowed.
func CheckSource(s string) error {
	u, err := url.Parse(s)
	plain := strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}?#", r) }) < 0
	if err != nil || !plain || s == "" || len(s) > maxSource || strings.HasSuffix(s, "/") || strings.HasSuffix(s, ":") || u.Path+u.Opaque+u.Host == "" {
		return fmt.Errorf("source is %.80q (allowed: a URI such as https://ledger.example.com/eu or %s, up to %d bytes, without query, fragment and a slash at the end)",
			s, DefaultSource, maxSource)
	}
	return nil
}

// source is the CloudEvent's: that of the installation, and the tenant.
func (e *Event) source() string {
	base := e.Source
	if base == "" {
		base = DefaultSource
	}
	return base + "/" + url.PathEscape(e.Bucket.Budget.Tenant)
}

// ID is the event's id: the same on every delivery, never given twice by one
// installation.
func (e *Event) ID() string { return e.At.String() }

// Type is the event's type, "" for an entry type that this version does not know.
func (e *Event) Type() string {
	if name, ok := jobTypes[e.Entry.Type]; ok && e.order().IsJob() {
		return name
	}
	return types[e.Entry.Type]
}

// Internal reports whether the event is of the control plane.
func (e *Event) Internal() bool { return InternalType(types[e.Entry.Type]) }

// ofOrder reports whether the event is one in the life of a reservation or job.
func (e *Event) ofOrder() bool { return e.Entry.Order != "" && !e.Internal() }

func (e *Event) order() ledger.OrderKey {
	return ledger.OrderKey{Tenant: e.Bucket.Budget.Tenant, Order: e.Entry.Order, Benefit: e.Entry.Benefit}
}

// Subject names what the event is about, within its tenant, as a path of escaped
// segments: reservations/ORDER/BENEFIT, jobs/JOB or budgets/[FUNDER/]KEY/BUCKET.
func (e *Event) Subject() string {
	k := e.order()
	switch {
	case !e.ofOrder():
		s := "budgets/"
		if f := e.Bucket.Budget.Funder; f != "" {
			s += url.PathEscape(f) + "/"
		}
		return s + url.PathEscape(e.Bucket.Budget.Key) + "/" + strconv.Itoa(int(e.Bucket.Index))
	case k.IsJob():
		return "jobs/" + url.PathEscape(k.Order)
	default:
		return "reservations/" + url.PathEscape(k.Order) + "/" + url.PathEscape(k.Benefit)
	}
}

// Key is what events are ordered by: tenant and subject. Events of one key are
// delivered one after the other.
func (e *Event) Key() string { return url.PathEscape(e.Bucket.Budget.Tenant) + "/" + e.Subject() }

// Sequence rises with each event of a key. Whether it does so without gaps, Next
// says.
func (e *Event) Sequence() uint64 {
	if e.ofOrder() {
		return uint64(e.Entry.EventSeq)
	}
	return e.Entry.Seq
}

// Next is the sequence that the key's next event will have, or 0 where that
// cannot be said; doc.go has the rule.
func (e *Event) Next() uint64 {
	switch {
	case !e.ofOrder():
		return 0
	case e.Entry.Peer != nil:
		return e.Sequence() + 2
	default:
		return e.Sequence() + 1
	}
}
