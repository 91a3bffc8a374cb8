package ledger

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"
)

// CheckRequest returns what is wrong with the request that a receipt keeps, or
// nil: the outcome does not follow from it, or it is no request of the
// operation. The request decides whether a command that comes again is the same
// one, so one that was changed refuses the caller's retry, or takes another's.
func (r *Receipt) CheckRequest(a *Attempt) error {
	if r.Void {
		if len(r.Request) != 0 {
			return fmt.Errorf("has a request though it settles that there was none")
		}
		return nil
	}
	f := readRequest(r.Op, r.Request)
	o := &r.Outcome
	switch r.Op {
	case OpReserve, OpHold, OpCharge:
		f.want("budget", string(f.next()) == a.Leg.Bucket.Budget.String())
		amount := f.int()
		f.want("amount_minor", amount == a.Leg.Amount && (r.Rejection != "" || amount == o.Amount))
		f.want("currency", string(f.next()) == a.Leg.Currency)
		if r.Op != OpCharge {
			ttl := time.Duration(f.int()) * time.Millisecond
			f.want("ttl", ttl > 0 && (r.Rejection != "" || o.Expires.Equal(a.Created.Add(ttl))))
		}
	case OpCommit, OpSettle:
		amount, partial := f.int(), string(f.next())
		f.want("amount_minor", amount == o.Amount || (amount == 0 && r.Op == OpCommit && partial == "false"))
		f.want("partial", partial == "true" || (partial == "false" && o.Held == 0))
	case OpExtend:
		f.want("ttl", f.int() > 0)
	case OpReverse:
		amount := f.int()
		f.want("amount_minor", amount == o.Amount || (amount == 0 && r.ByLines()))
	}
	return f.end()
}

// requestReader takes a canonical request apart, field by field, and keeps the
// first thing that is wrong.
type requestReader struct {
	b     []byte
	added int // fields that the request's version appended
	err   error
}

func readRequest(op Op, b []byte) requestReader {
	f := requestReader{b: b}
	switch {
	case len(b) > 0 && b[0] == canonicalVersion:
	case len(b) > 0 && b[0] == canonicalVersionV2:
		f.added = len(canonicalAdded[op])
	default:
		f.err = fmt.Errorf("has a request of no known version")
		return f
	}
	f.b = b[1:]
	return f
}

func (f *requestReader) next() []byte {
	n, w := binary.Uvarint(f.b)
	if f.err != nil || w <= 0 || n > uint64(len(f.b)-w) {
		f.fail("has a request that cannot be read")
		return nil
	}
	v := f.b[w : w+int(n)]
	f.b = f.b[w+int(n):]
	return v
}

func (f *requestReader) int() int64 {
	v, err := strconv.ParseInt(string(f.next()), 10, 64)
	if err != nil {
		f.fail("has a request with a number that cannot be read")
	}
	return v
}

func (f *requestReader) fail(why string) {
	if f.err == nil {
		f.err = fmt.Errorf("%s", why)
	}
}

func (f *requestReader) want(field string, ok bool) {
	if !ok && f.err == nil {
		f.err = fmt.Errorf("has a request with a %s that its outcome does not follow from", field)
	}
}

// end gives what was wrong, if the request has no more fields than it should.
func (f *requestReader) end() error {
	for range f.added {
		f.next()
	}
	if len(f.b) != 0 {
		f.fail("has a request with more fields than its operation")
	}
	return f.err
}
