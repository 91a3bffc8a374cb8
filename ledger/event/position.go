package event

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// StampSize is the length of a position's stamp: ten bytes of the commit's
// versionstamp and two that order the pointers of one transaction.
const StampSize = 12

// ErrPosition is the identity of all that ParsePosition refuses.
var ErrPosition = errors.New("malformed position")

// Position is where an event stands in the outbox. It is comparable.
type Position struct {
	Incarnation, Partition uint64
	Stamp                  [StampSize]byte
	// Index is the entry's place in its block, from 0.
	Index uint32
}

// Compare is negative when p is before q. It sorts by incarnation and partition
// first; only within one of each does the order say which was first.
func (p Position) Compare(q Position) int {
	return cmp.Or(
		cmp.Compare(p.Incarnation, q.Incarnation),
		cmp.Compare(p.Partition, q.Partition),
		bytes.Compare(p.Stamp[:], q.Stamp[:]),
		cmp.Compare(p.Index, q.Index),
	)
}

// Before reports whether p comes before q in the order of Compare.
func (p Position) Before(q Position) bool { return p.Compare(q) < 0 }

// IsZero reports whether this is no position.
func (p Position) IsZero() bool { return p == Position{} }

// String is the textual form, such as "1-03-000000000000000700000000-2":
// incarnation, partition of at least two digits, stamp in hexadecimal, index.
func (p Position) String() string {
	b := make([]byte, 0, 40)
	b = strconv.AppendUint(b, p.Incarnation, 10)
	b = append(b, '-')
	if p.Partition < 10 {
		b = append(b, '0')
	}
	b = strconv.AppendUint(b, p.Partition, 10)
	b = append(b, '-')
	b = hex.AppendEncode(b, p.Stamp[:])
	b = append(b, '-')
	return string(strconv.AppendUint(b, uint64(p.Index), 10))
}

// ParsePosition reads what String wrote, and nothing else: one position has one
// text. Its errors are ErrPosition.
func ParsePosition(s string) (Position, error) {
	p, ok := parsePosition(s)
	if !ok || p.String() != s {
		return Position{}, fmt.Errorf("%w %.80q: want incarnation-partition-stamp-index, such as 1-03-000000000000000700000000-2", ErrPosition, s)
	}
	return p, nil
}

func parsePosition(s string) (p Position, ok bool) {
	part := strings.Split(s, "-")
	if len(part) != 4 || len(part[2]) != 2*StampSize {
		return p, false
	}
	var err [4]error
	p.Incarnation, err[0] = strconv.ParseUint(part[0], 10, 64)
	p.Partition, err[1] = strconv.ParseUint(part[1], 10, 64)
	_, err[2] = hex.Decode(p.Stamp[:], []byte(part[2]))
	index, e := strconv.ParseUint(part[3], 10, 32)
	p.Index, err[3] = uint32(index), e
	return p, err == [4]error{}
}

// MarshalText is String.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePosition.
func (p *Position) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePosition(string(b))
	return err
}
