package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Content types of an event with its envelope, and of its data alone.
const (
	ContentType     = "application/cloudevents+json"
	DataContentType = "application/json"
	specVersion     = "1.0"
	timeLayout      = "2006-01-02T15:04:05.000Z07:00"
)

// What Parse refuses an event for.
var (
	// ErrMalformed: it is not an event of Coffer's.
	ErrMalformed = errors.New("malformed event")
	// ErrUnknownType: it is of a type or a version that this reader does not
	// know. A consumer that has no use for new types may acknowledge it.
	ErrUnknownType = errors.New("unknown event type")
)

// Data is the payload of an event, version 1.
type Data struct {
	Tenant string `json:"tenant"`
	// Budget is "key" or "funder/key"; Bucket its slice that the entry is of.
	Budget   string `json:"budget"`
	Bucket   uint16 `json:"bucket"`
	Currency string `json:"currency"`
	// OrderID and BenefitKey name a reservation, JobID a job; none of the three
	// is there for an event of the budget itself.
	OrderID    string `json:"order_id,omitempty"`
	BenefitKey string `json:"benefit_key,omitempty"`
	JobID      string `json:"job_id,omitempty"`
	Attempt    uint32 `json:"attempt,omitempty"`
	// Sequence rises with the events of one key. NextSequence is what the key's
	// next event will have, absent where that cannot be said.
	Sequence     uint64 `json:"sequence"`
	NextSequence uint64 `json:"next_sequence,omitempty"`
	// EntrySeq counts the bucket's entries, EventSeq the reservation's or job's.
	EntrySeq uint64 `json:"entry_seq"`
	EventSeq uint32 `json:"event_seq,omitempty"`
	// Delta is the whole change of the bucket, After its balances once it was
	// made, in minor units.
	Delta Balances `json:"delta"`
	After Balances `json:"after"`
	// RefersTo is the entry_seq of the entry that this one undoes.
	RefersTo uint64 `json:"refers_to,omitempty"`
	// Cause is the payment, refund or idempotency key that the command came
	// with, or why an internal one was made.
	Cause         string `json:"cause,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	// Peer is the other bucket of a move between two; of a reshard, the last
	// bucket that is used from now on.
	Peer *Peer `json:"peer,omitempty"`
}

// Balances are ledger.Balances in JSON, in minor units.
type Balances struct {
	Funded    int64 `json:"funded_minor"`
	Available int64 `json:"available_minor"`
	Reserved  int64 `json:"reserved_minor"`
	Committed int64 `json:"committed_minor"`
	Reversed  int64 `json:"reversed_minor"`
}

// Peer names a bucket of the same tenant.
type Peer struct {
	Budget string `json:"budget"`
	Bucket uint16 `json:"bucket"`
}

// Data is the event's payload. The name of the node that wrote the entry is not
// part of it.
func (e *Event) Data() *Data {
	en := &e.Entry
	d := &Data{
		Tenant: e.Bucket.Budget.Tenant, Budget: e.Bucket.Budget.String(), Bucket: e.Bucket.Index, Currency: e.Currency,
		Attempt: en.Attempt, Sequence: e.Sequence(), NextSequence: e.Next(), EntrySeq: en.Seq, EventSeq: en.EventSeq,
		Delta: Balances(en.Delta), After: Balances(en.After), RefersTo: en.RefersTo, Cause: en.Cause, CorrelationID: en.Correlation,
	}
	if e.order().IsJob() {
		d.JobID = en.Order
	} else {
		d.OrderID, d.BenefitKey = en.Order, en.Benefit
	}
	if en.Peer != nil {
		d.Peer = &Peer{Budget: en.Peer.Budget.String(), Bucket: en.Peer.Index}
	}
	return d
}

// envelope is a CloudEvent in the JSON format.
type envelope struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            string          `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	PartitionKey    string          `json:"partitionkey"`
	Sequence        string          `json:"sequence"`
	CorrelationID   string          `json:"correlationid,omitempty"`
	TraceParent     string          `json:"traceparent,omitempty"`
	Data            json.RawMessage `json:"data"`
}

func (e *Event) envelope() (*envelope, error) {
	data, err := json.Marshal(e.Data())
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.At, err)
	}
	v := &envelope{
		SpecVersion: specVersion, ID: e.ID(), Source: e.source(), Type: e.Type(), Subject: e.Subject(),
		Time: e.Time.UTC().Format(timeLayout), DataContentType: DataContentType, PartitionKey: e.Key(),
		// Padded, so that the order of the texts is that of the numbers.
		Sequence: fmt.Sprintf("%020d", e.Sequence()), CorrelationID: e.Entry.Correlation, Data: data,
	}
	if isTraceParent(v.CorrelationID) {
		v.TraceParent = v.CorrelationID
	}
	return v, nil
}

// isTraceParent reports whether a correlation id is the traceparent of a W3C
// Trace Context, version 00.
func isTraceParent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	return strings.Trim(s[3:35]+s[36:52]+s[53:], "0123456789abcdef") == "" &&
		strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// MarshalJSON writes the event as a CloudEvent in the JSON format.
func (e *Event) MarshalJSON() ([]byte, error) {
	v, err := e.envelope()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// UnmarshalJSON is Parse.
func (e *Event) UnmarshalJSON(b []byte) error {
	p, err := Parse(b)
	if err == nil {
		*e = *p
	}
	return err
}

// Parse reads a CloudEvent in the JSON format. Members and attributes that it
// does not know are left out, so that a version may grow. Its errors are
// ErrMalformed and ErrUnknownType.
func Parse(b []byte) (*Event, error) {
	var v envelope
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return v.event()
}

func (v *envelope) event() (*Event, error) {
	if v.SpecVersion != specVersion {
		return nil, fmt.Errorf("%w: specversion is %.20q (allowed: %s)", ErrMalformed, v.SpecVersion, specVersion)
	}
	t, ok := entryOf[v.Type]
	if !ok {
		return nil, fmt.Errorf("%w %.80q in event %.80q", ErrUnknownType, v.Type, v.ID)
	}
	at, err := ParsePosition(v.ID)
	if err != nil {
		return nil, fmt.Errorf("%w: id: %w", ErrMalformed, err)
	}
	when, err := time.Parse(time.RFC3339, v.Time)
	if err != nil {
		return nil, fmt.Errorf("%w %s: time: %w", ErrMalformed, at, err)
	}
	var d Data
	if err := json.Unmarshal(v.Data, &d); err != nil {
		return nil, fmt.Errorf("%w %s: data: %w", ErrMalformed, at, err)
	}
	e := d.event(at, t, when.UTC())
	if base, ok := strings.CutSuffix(v.Source, "/"+url.PathEscape(d.Tenant)); ok && base != DefaultSource {
		e.Source = base
	}
	// The rest says what the data says; an event that contradicts itself is none.
	for _, c := range []struct{ name, is, want string }{
		{"type", v.Type, e.Type()},
		{"source", v.Source, e.source()},
		{"subject", v.Subject, e.Subject()},
		{"data.tenant", d.Tenant, e.Bucket.Budget.Tenant},
		{"data.sequence", fmt.Sprint(d.Sequence), fmt.Sprint(e.Sequence())},
		{"data.next_sequence", fmt.Sprint(d.NextSequence), fmt.Sprint(e.Next())},
	} {
		if c.is != c.want {
			return nil, fmt.Errorf("%w %s: %s is %.80q, and the rest of it says %.80q", ErrMalformed, at, c.name, c.is, c.want)
		}
	}
	if d.Tenant == "" || d.Budget == "" || d.Currency == "" || d.EntrySeq == 0 || d.Sequence == 0 {
		return nil, fmt.Errorf("%w %s: tenant, budget, currency, entry_seq or sequence is missing from the data", ErrMalformed, at)
	}
	return e, nil
}

func (d *Data) event(at Position, t ledger.EntryType, when time.Time) *Event {
	e := &Event{
		At: at, Bucket: ledger.BucketID{Budget: ledger.ParseBudget(d.Tenant, d.Budget), Index: d.Bucket}, Currency: d.Currency, Time: when,
		Entry: ledger.Entry{
			Seq: d.EntrySeq, Type: t, Order: d.OrderID, Benefit: d.BenefitKey, Attempt: d.Attempt, EventSeq: d.EventSeq,
			Delta: ledger.Balances(d.Delta), After: ledger.Balances(d.After), RefersTo: d.RefersTo, Cause: d.Cause, Correlation: d.CorrelationID,
		},
	}
	if d.JobID != "" {
		e.Entry.Order, e.Entry.Benefit = d.JobID, ledger.JobBenefit
	}
	if d.Peer != nil {
		e.Entry.Peer = &ledger.BucketID{Budget: ledger.ParseBudget(d.Tenant, d.Peer.Budget), Index: d.Peer.Bucket}
	}
	return e
}
