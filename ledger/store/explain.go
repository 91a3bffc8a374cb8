package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Bounds of an explanation.
const (
	// maxExplained is how many benefits of one order are explained at once.
	maxExplained = 1000
	// entriesPerTx is how many blocks one transaction fetches: a block may
	// have 64 KiB.
	entriesPerTx = 16
	// maxCaseScan is how many cases are looked through for the one of an
	// attempt.
	maxCaseScan = 4096
)

// Explain tells what happened to an order, or to one benefit of it, and why:
// every receipt of its rows in plain words, with the ledger entry it wrote, in
// the order of time. It includes what moved nothing: refusals, tombstones,
// settled absences. RESERVATION_NOT_FOUND when there is nothing.
//
// Commands that are refused by the state of the reservation leave no receipt,
// so they are not in it.
func (s *Store) Explain(ctx context.Context, tenant, order, benefit string) (*Explanation, error) {
	ex := &Explanation{Order: order}
	var err error
	if ex.Reservations, err = s.rowsOf(ctx, tenant, order, benefit); err != nil {
		return nil, err
	}
	if len(ex.Reservations) == 0 {
		r := &ledger.Rejection{Code: ledger.ReservationNotFound, Field: "order_id", Value: fmt.Sprintf("%.40q", order), Message: "has no reservation"}
		if benefit != "" {
			r.Message = fmt.Sprintf("has no reservation of benefit %.40q", benefit)
		}
		return nil, r
	}
	for i := range ex.Reservations {
		res := &ex.Reservations[i]
		for j := range res.Attempts {
			tell(ex, res, &res.Attempts[j])
			if err := s.tellCase(ctx, ex, res, &res.Attempts[j]); err != nil {
				return nil, err
			}
		}
		if err := s.tellLines(ctx, ex, res); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(ex.Timeline, func(a, b TimelineEvent) int { return a.Time.Compare(b.Time) })
	return ex, s.fetchEntries(ctx, ex.Timeline)
}

// rowsOf reads the rows of an order.
func (s *Store) rowsOf(ctx context.Context, tenant, order, benefit string) (out []ledger.Reservation, err error) {
	rng := s.orderPrefix(tenant, order).all()
	if benefit != "" {
		rng = kv.KeyRange(s.reservationKey(ledger.OrderKey{Tenant: tenant, Order: order, Benefit: benefit}))
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		out = nil
		rows, _, err := r.Range(rng, kv.RangeOptions{Limit: maxExplained}).Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			res, err := s.decodeReservationRow(row)
			if err != nil {
				return err
			}
			out = append(out, *res)
		}
		return nil
	})
	return out, err
}

// tell adds an attempt's receipts to the timeline, in the order they came.
func tell(ex *Explanation, res *ledger.Reservation, a *ledger.Attempt) {
	for i := range a.Receipts {
		rc := &a.Receipts[i]
		ev := TimelineEvent{Time: rc.Outcome.At, Benefit: res.Key.Benefit, Attempt: a.Number, Op: rc.Op, Text: inWords(a, rc), id: rc.ID}
		if rc.Outcome.Seq > 0 {
			ev.Entry = &EntryView{Bucket: rc.Outcome.Bucket, Entry: ledger.Entry{Seq: rc.Outcome.Seq}}
		}
		ex.Timeline = append(ex.Timeline, ev)
	}
}

// tellCase adds the case that a late commit left to a person. The attempt
// says that there is one, the cases say since when.
func (s *Store) tellCase(ctx context.Context, ex *Explanation, res *ledger.Reservation, a *ledger.Attempt) error {
	if !a.CaseOpened {
		return nil
	}
	from := s.key(tableCase).str(res.Key.Tenant)
	rng := kv.Range{Begin: from.uint(uint64(max(0, a.Created.UnixMilli()))), End: s.key(tableCase).str(res.Key.Tenant).all().End}
	seen := 0
	err := s.scan(ctx, rng, func(rows []kv.KeyValue) error {
		for _, row := range rows {
			c, err := s.decodeCase(row.Key, row.Value)
			if err != nil {
				return corrupt("case", err)
			}
			if c.Key == res.Key && c.Attempt == a.Number {
				ev := TimelineEvent{
					Time: c.Opened, Benefit: c.Key.Benefit, Attempt: c.Attempt, Op: ledger.OpCommit,
					Text: fmt.Sprintf("late commit of %s refused after expiry; a case was opened for a person to decide", money(c.Amount, a.Leg.Currency)),
				}
				if c.Key.IsJob() {
					ev.Op = ledger.OpReclaimCharge
					ev.Text = fmt.Sprintf("delivered, but %s could not be taken; a case was opened for a person to decide", money(c.Amount, a.Leg.Currency))
				}
				ex.Timeline = append(ex.Timeline, ev)
				return errCutoff
			}
		}
		if seen += len(rows); seen >= maxCaseScan {
			return errCutoff
		}
		return nil
	})
	if errors.Is(err, errCutoff) {
		return nil
	}
	return err
}

// fetchEntries completes the entries of a timeline from their blocks, which
// are immutable: a few per transaction.
func (s *Store) fetchEntries(ctx context.Context, events []TimelineEvent) error {
	var want []*EntryView
	for i := range events {
		if events[i].Entry != nil {
			want = append(want, events[i].Entry)
		}
	}
	for len(want) > 0 {
		n := min(len(want), entriesPerTx)
		if err := s.readTx(ctx, func(r kv.Reader) error { return s.entriesAt(r, want[:n]) }); err != nil {
			return err
		}
		want = want[n:]
	}
	return nil
}

// entriesAt fills in the entries whose bucket and number are given. An entry
// is found by one reverse read of one block.
func (s *Store) entriesAt(r kv.Reader, want []*EntryView) error {
	pending := make([]kv.Rows, len(want))
	for i, en := range want {
		rng := kv.Range{Begin: s.key(tableBlock).bucket(en.Bucket).all().Begin, End: append(s.blockKey(en.Bucket, en.Seq), 0)}
		pending[i] = r.Range(rng, kv.RangeOptions{Limit: 1, Reverse: true})
	}
	for i, p := range pending {
		rows, _, err := p.Wait()
		if err != nil {
			return err
		}
		en := want[i]
		missing := corrupt("entry", fmt.Errorf("a receipt names entry %d of bucket %s, which is not there", en.Seq, en.Bucket))
		if len(rows) == 0 {
			return missing
		}
		b, err := s.decodeBlock(rows[0].Key, rows[0].Value)
		if err != nil {
			return corrupt("ledger block", err)
		}
		if en.Seq-b.First >= uint64(len(b.Entries)) {
			return missing
		}
		en.Entry, en.Time = b.Entries[en.Seq-b.First], b.Time
	}
	return nil
}

// inWords says what a receipt records.
func inWords(a *ledger.Attempt, rc *ledger.Receipt) string {
	if rc.Void {
		return fmt.Sprintf("%s%s settled as never happening, after a caller had lost its answer", rc.Op, withID(rc))
	}
	if words := jobInWords(a, rc); words != "" {
		return words
	}
	o, cur := &rc.Outcome, a.Leg.Currency
	amount := money(o.Amount, cur)
	switch rc.Op {
	case ledger.OpReserve:
		return reserveInWords(a, rc)
	case ledger.OpCommit:
		return commitInWords(a, rc)
	case ledger.OpExtend:
		return extendInWords(a, rc)
	case ledger.OpRelease:
		if o.State == ledger.StateCancelled {
			return fmt.Sprintf("cancelled%s before any reserve arrived; a reserve of this attempt is refused from now on", withID(rc))
		}
		return fmt.Sprintf("released %s%s back to the budget%s", amount, withID(rc), keeps(o, cur))
	case ledger.OpExpire:
		return fmt.Sprintf("expired: %s returned to the budget%s", amount, keeps(o, cur))
	case ledger.OpReclaim:
		return fmt.Sprintf("reclaimed %s%s from available: the order was paid after all", amount, withID(rc))
	case ledger.OpReverse:
		if rc.Sink != nil {
			return fmt.Sprintf("refunded %s%s to bucket %s, because the budget is closed; %s of %s refunded",
				amount, withID(rc), *rc.Sink, money(o.Reversed, cur), money(o.Committed, cur))
		}
		return fmt.Sprintf("refunded %s%s to the budget; %s of %s refunded", amount, withID(rc), money(o.Reversed, cur), money(o.Committed, cur))
	case ledger.OpReinstate:
		from := "available"
		if rc.Sink != nil {
			from = "bucket " + rc.Sink.String()
		}
		return fmt.Sprintf("refund%s undone: %s taken from %s again; %s of %s refunded", withID(rc), amount, from, money(o.Reversed, cur), money(o.Committed, cur))
	default:
		return rc.Op.String()
	}
}

// extendInWords looks for an earlier receipt with the same end: a hold is never
// shortened.
func extendInWords(a *ledger.Attempt, rc *ledger.Receipt) string {
	o := &rc.Outcome
	for i := range a.Receipts {
		earlier := &a.Receipts[i]
		if earlier == rc {
			break
		}
		if earlier.Outcome.State == ledger.StateReserved && earlier.Outcome.Expires.Equal(o.Expires) {
			return fmt.Sprintf("extended%s by nothing: held until %s as before", withID(rc), clock(o))
		}
	}
	return fmt.Sprintf("extended%s, now held until %s", withID(rc), clock(o))
}

func reserveInWords(a *ledger.Attempt, rc *ledger.Receipt) string {
	o, cur := &rc.Outcome, a.Leg.Currency
	if rc.Rejection != "" {
		return refusedInWords(a, rc, "budget")
	}
	return fmt.Sprintf("reserved %s of budget %s for %s, until %s", money(o.Amount, cur), o.Bucket.Budget, span(o.Expires.Sub(a.Created)), clock(o))
}

func commitInWords(a *ledger.Attempt, rc *ledger.Receipt) string {
	o, cur := &rc.Outcome, a.Leg.Currency
	switch {
	case o.Late:
		return fmt.Sprintf("committed %s%s after expiry: a late commit, taken from available again", money(o.Amount, cur), withID(rc))
	case o.Held > 0:
		return fmt.Sprintf("committed %s%s in part; %s still held", money(o.Amount, cur), withID(rc), money(o.Held, cur))
	case o.Committed > a.Leg.Amount:
		return fmt.Sprintf("committed %s%s, which is %s above what was reserved", money(o.Amount, cur), withID(rc), money(o.Committed-a.Leg.Amount, cur))
	default:
		return fmt.Sprintf("committed %s%s", money(o.Amount, cur), withID(rc))
	}
}

// keeps tells of what an attempt had committed before its rest went back.
func keeps(o *ledger.Outcome, cur string) string {
	if o.Committed == 0 {
		return ""
	}
	return fmt.Sprintf("; %s stays committed", money(o.Committed, cur))
}

// span writes a duration without zero minutes and seconds at its end.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func clock(o *ledger.Outcome) string { return o.Expires.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// withID names the id that tells a command from others of its kind.
func withID(rc *ledger.Receipt) string {
	if rc.ID == "" {
		return ""
	}
	word := "operation"
	switch rc.Op {
	case ledger.OpCommit:
		word = "payment"
	case ledger.OpReverse, ledger.OpReinstate:
		word = "refund"
	}
	return fmt.Sprintf(" (%s %s)", word, rc.ID)
}

// money writes minor units with their currency: "45.17 BRL".
func money(v int64, currency string) string {
	d := ledger.Digits(currency)
	sign, u := "", uint64(v)
	if v < 0 {
		sign, u = "-", -uint64(v)
	}
	s := fmt.Sprintf("%0*d", d+1, u)
	if d > 0 {
		s = s[:len(s)-d] + "." + s[len(s)-d:]
	}
	if currency != "" {
		s += " " + currency
	}
	return sign + s
}
