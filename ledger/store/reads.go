package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Budget reads a budget and all its buckets at one moment.
func (s *Store) Budget(ctx context.Context, id ledger.BudgetID) (*BudgetView, error) {
	var view *BudgetView
	err := s.readTx(ctx, func(r kv.Reader) error {
		def := r.Get(s.budgetKey(id))
		rows := r.Range(s.bucketsOf(id), kv.RangeOptions{})
		v, ok, err := def.Wait()
		if err != nil {
			return err
		}
		if !ok {
			return ledger.BudgetMissing(id)
		}
		view, err = s.view(id, v, rows)
		return err
	})
	return view, err
}

func (s *Store) view(id ledger.BudgetID, def []byte, rows kv.Rows) (*BudgetView, error) {
	b, err := decodeBudget(id, def)
	if err != nil {
		return nil, corrupt("budget "+id.String(), err)
	}
	kvs, _, err := rows.Wait()
	if err != nil {
		return nil, err
	}
	view := &BudgetView{Budget: *b}
	for _, row := range kvs {
		r := s.read(row.Key, tableBucket)
		bid := r.bucket()
		if err := r.end(); err != nil {
			return nil, corrupt("bucket key", err)
		}
		k, err := decodeBucket(bid, row.Value)
		if err != nil {
			return nil, corrupt("bucket "+bid.String(), err)
		}
		view.Buckets = append(view.Buckets, k)
		total, ok := view.Total.Add(k.Balances)
		if !ok {
			return nil, corrupt("budget "+id.String(), errors.New("the sum of its buckets overflows"))
		}
		view.Total = total
	}
	return view, nil
}

// Definition reads a budget without its buckets: what a router needs.
func (s *Store) Definition(ctx context.Context, id ledger.BudgetID) (*ledger.Budget, error) {
	var b *ledger.Budget
	err := s.readTx(ctx, func(r kv.Reader) error {
		v, ok, err := r.Get(s.budgetKey(id)).Wait()
		if err != nil {
			return err
		}
		if !ok {
			return ledger.BudgetMissing(id)
		}
		if b, err = decodeBudget(id, v); err != nil {
			return corrupt("budget "+id.String(), err)
		}
		return nil
	})
	return b, err
}

// Reservation reads the row of one benefit of one order.
func (s *Store) Reservation(ctx context.Context, k ledger.OrderKey) (*ledger.Reservation, error) {
	rows, err := s.Locate(ctx, []ledger.OrderKey{k})
	if err != nil {
		return nil, err
	}
	if rows[0] == nil {
		return nil, &ledger.Rejection{
			Code: ledger.ReservationNotFound, Field: "order_id", Value: fmt.Sprintf("%.40q", k.Order),
			Message: fmt.Sprintf("has no reservation of benefit %.40q", k.Benefit),
		}
	}
	return rows[0], nil
}

// Locate reads many reservation rows at once; nil where there is none.
func (s *Store) Locate(ctx context.Context, keys []ledger.OrderKey) ([]*ledger.Reservation, error) {
	var out []*ledger.Reservation
	err := s.readTx(ctx, func(r kv.Reader) error {
		out = make([]*ledger.Reservation, len(keys))
		values := make([]kv.Value, len(keys))
		for i, k := range keys {
			values[i] = r.Get(s.reservationKey(k))
		}
		for i, v := range values {
			raw, ok, err := v.Wait()
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if out[i], err = decodeReservation(keys[i], raw); err != nil {
				return corrupt("reservation "+keys[i].String(), err)
			}
		}
		return nil
	})
	return out, err
}

// Entries lists a budget's entries, bucket by bucket, in the order of their
// sequence; with bucket, those of this one, which must be there.
func (s *Store) Entries(ctx context.Context, id ledger.BudgetID, bucket *uint16, p Page) (entries []EntryView, next string, err error) {
	list := "entries/" + id.Tenant + "/" + id.String()
	rng := s.key(tableBlock).budget(id).all()
	if bucket != nil {
		list = fmt.Sprintf("%s#%d", list, *bucket)
		rng = s.key(tableBlock).bucket(ledger.BucketID{Budget: id, Index: *bucket}).all()
	}
	def, err := s.Definition(ctx, id)
	if err == nil && bucket != nil {
		err = s.knowsBucket(ctx, def, *bucket)
	}
	if err != nil {
		return nil, "", err
	}
	rest, size, err := s.open(p, list, rng)
	if err != nil {
		return nil, "", err
	}
	var start uint64
	if p.Token != "" {
		k := s.read(rest.Begin[:len(rest.Begin)-1], tableBlock)
		k.bucket()
		if start = k.uint(); k.end() != nil {
			return nil, "", badToken(p.Token)
		}
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		from := rest
		if start > 0 { // the token names an entry: begin with the block that holds it
			rows, _, err := r.Range(kv.Range{Begin: rng.Begin, End: rest.Begin}, kv.RangeOptions{Limit: 1, Reverse: true}).Wait()
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return badToken(p.Token)
			}
			from.Begin = rows[0].Key
		}
		entries, next, err = s.entriesFrom(r, from, start, size, list)
		return err
	})
	return entries, next, err
}

// knowsBucket refuses a bucket that the budget has not, and never had: one that
// was retired keeps its row and its entries.
func (s *Store) knowsBucket(ctx context.Context, b *ledger.Budget, index uint16) error {
	if int(index) < b.Buckets() || index == ledger.Unallocated {
		return nil
	}
	return s.readTx(ctx, func(r kv.Reader) error {
		_, ok, err := r.Get(s.bucketKey(ledger.BucketID{Budget: b.ID, Index: index})).Wait()
		if err != nil || ok {
			return err
		}
		allowed := "0"
		if last := b.Buckets() - 1; last > 0 {
			allowed = fmt.Sprintf("0 to %d", last)
		}
		return &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "bucket", Value: fmt.Sprint(index), Limit: allowed,
			Message: fmt.Sprintf("is no bucket of %s, which has %d", b.ID, b.Buckets()),
		}
	})
}

// entriesFrom reads up to size entries of the range, those below start in its
// first block left out, and the token of the entry after them.
func (s *Store) entriesFrom(r kv.Reader, from kv.Range, start uint64, size int, list string) (entries []EntryView, next string, err error) {
	const blocks = 16
	for {
		rows, more, err := r.Range(from, kv.RangeOptions{Limit: blocks}).Wait()
		if err != nil {
			return nil, "", err
		}
		for _, row := range rows {
			b, err := s.decodeBlock(row.Key, row.Value)
			if err != nil {
				return nil, "", corrupt("ledger block", err)
			}
			for _, en := range b.Entries {
				if en.Seq < start {
					continue
				}
				if len(entries) == size {
					return entries, s.token(list, s.blockKey(b.Bucket, en.Seq)), nil
				}
				entries = append(entries, EntryView{Entry: en, Bucket: b.Bucket, Time: b.Time})
			}
			start = 0
			from.Begin = append(append([]byte(nil), row.Key...), 0)
		}
		if !more {
			return entries, "", nil
		}
	}
}

// Cases lists a tenant's cases, the oldest first.
func (s *Store) Cases(ctx context.Context, tenant string, p Page) (cases []CaseView, next string, err error) {
	list := "cases/" + tenant
	from, size, err := s.open(p, list, s.key(tableCase).str(tenant).all())
	if err != nil {
		return nil, "", err
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		cases, next = nil, ""
		rows, more, err := r.Range(from, kv.RangeOptions{Limit: size}).Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			c, err := s.decodeCase(row.Key, row.Value)
			if err != nil {
				return corrupt("case", err)
			}
			view := CaseView{Case: c}
			raw, ok, err := r.Get(s.reservationKey(c.Key)).Wait()
			if err != nil {
				return err
			}
			if ok {
				res, err := decodeReservation(c.Key, raw)
				if err != nil {
					return corrupt("reservation "+c.Key.String(), err)
				}
				if a := res.Attempt(c.Attempt); a != nil {
					view.State = a.State
				}
			}
			cases = append(cases, view)
		}
		if more {
			next = s.token(list, rows[len(rows)-1].Key)
		}
		return nil
	})
	return cases, next, err
}

// A page token is the key the last page ended with, without the store's
// prefix, and a checksum that binds it to its list, so that a made-up token,
// or one of another list or tenant, is refused. What it can reach is bounded
// by the list's own range in any case.
func (s *Store) token(list string, k []byte) string {
	body := k[len(s.opt.Prefix):]
	sum := crc32.NewIEEE()
	_, _ = sum.Write([]byte(list))
	_, _ = sum.Write([]byte{0})
	_, _ = sum.Write(body)
	return base64.RawURLEncoding.EncodeToString(append(sum.Sum(nil), body...))
}

// open returns the rest of rng after the page's token.
func (s *Store) open(p Page, list string, rng kv.Range) (kv.Range, int, error) {
	size := p.Size
	switch {
	case size == 0:
		size = DefaultPageSize
	case size < 0 || size > MaxPageSize:
		return rng, 0, &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "page_size", Value: fmt.Sprint(size),
			Limit: fmt.Sprintf("1 to %d", MaxPageSize), Message: "is out of range",
		}
	}
	if p.Token == "" {
		return rng, size, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(p.Token)
	if err != nil || len(raw) <= 4 {
		return rng, 0, badToken(p.Token)
	}
	k := append(append([]byte(nil), s.opt.Prefix...), raw[4:]...)
	if s.token(list, k) != p.Token || string(k) < string(rng.Begin) || string(k) >= string(rng.End) {
		return rng, 0, badToken(p.Token)
	}
	rng.Begin = append(k, 0)
	return rng, size, nil
}

func badToken(t string) *ledger.Rejection {
	return &ledger.Rejection{
		Code: ledger.BadPageToken, Field: "page_token", Value: fmt.Sprintf("%.40q", t),
		Limit: "a token of the same list", Message: "was not given by this list",
	}
}
