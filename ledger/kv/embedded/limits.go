package embedded

import (
	"bytes"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// keysEnd is the end of the keys that users may have. The engine keeps its
// own rows beyond it.
var keysEnd = []byte{0xFF}

// stampLen is how much of a stamp the engine fills in.
const stampLen = 10

func checkReadKey(op string, key []byte) error {
	if len(key) > kv.MaxKeyBytes {
		return keyTooLarge(op, key)
	}
	if bytes.Compare(key, keysEnd) >= 0 {
		return &kv.Error{Code: kv.CodeKeyOutside, Op: op, Detail: "keys that start with 0xff belong to the system"}
	}
	return nil
}

func checkWrite(op string, key, value []byte) error {
	if err := checkReadKey(op, key); err != nil {
		return err
	}
	if len(value) > kv.MaxValueBytes {
		return &kv.Error{
			Code: kv.CodeValueTooLarge, Op: op,
			Detail: fmt.Sprintf("value of %d bytes, at most %d allowed", len(value), kv.MaxValueBytes),
		}
	}
	return nil
}

func keyTooLarge(op string, key []byte) error {
	return &kv.Error{
		Code: kv.CodeKeyTooLarge, Op: op,
		Detail: fmt.Sprintf("key of %d bytes, at most %d allowed", len(key), kv.MaxKeyBytes),
	}
}

// checkRange allows ends one byte longer than a key, since the range of one
// key ends there, and the very end of the users' keys.
func checkRange(op string, r kv.Range) error {
	if len(r.Begin) > kv.MaxKeyBytes+1 {
		return keyTooLarge(op, r.Begin)
	}
	if len(r.End) > kv.MaxKeyBytes+1 {
		return keyTooLarge(op, r.End)
	}
	if bytes.Compare(r.Begin, keysEnd) > 0 || bytes.Compare(r.End, keysEnd) > 0 {
		return &kv.Error{Code: kv.CodeKeyOutside, Op: op, Detail: "ranges end at 0xff at the latest"}
	}
	if bytes.Compare(r.Begin, r.End) > 0 {
		return &kv.Error{
			Code: kv.CodeInvertedRange, Op: op,
			Detail: fmt.Sprintf("begin %q is after end %q", clip(r.Begin), clip(r.End)),
		}
	}
	return nil
}

// clip shortens a key for a message.
func clip(key []byte) []byte { return key[:min(len(key), 64)] }

// checkStamp wants a key or value that is shorter than the limit of others by
// the contract's overhead, with room for the ten bytes that the engine fills
// in. The caller's user version behind them is the caller's affair.
func checkStamp(op string, offset, length, limit int, tooLarge kv.Code) error {
	if limit -= kv.StampOverhead; length > limit {
		return &kv.Error{Code: tooLarge, Op: op, Detail: fmt.Sprintf("%d bytes, at most %d allowed with a stamp", length, limit)}
	}
	if offset < 0 || offset > length-stampLen {
		return &kv.Error{
			Code: kv.CodeBadStampOffset, Op: op,
			Detail: fmt.Sprintf("offset %d leaves no room for %d bytes in %d", offset, stampLen, length),
		}
	}
	return nil
}
