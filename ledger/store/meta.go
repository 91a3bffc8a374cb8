package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Names of the store's own rows.
const (
	metaFormat      = "format"
	metaIncarnation = "incarnation"
	metaProbe       = "probe"
)

// MaxIncarnation bounds an incarnation: it stands in keys.
const MaxIncarnation = 1 << 32

// Info is what a store says of itself.
type Info struct {
	Format      uint64 `json:"format"`
	Incarnation uint64 `json:"incarnation"`
}

// prepare checks the store's own rows, writing those of an empty ledger.
func (s *Store) prepare(tx kv.Tx) (Info, error) {
	var in Info
	var err error
	if in.Format, err = s.meta(tx, metaFormat, formatVersion); err != nil {
		return in, err
	}
	if in.Format != formatVersion {
		return in, fmt.Errorf("%w: it has format %d, this version reads %d; use the version of coffer that wrote it, or a newer one", ErrFormat, in.Format, formatVersion)
	}
	in.Incarnation, err = s.meta(tx, metaIncarnation, 1)
	return in, err
}

// meta reads a number of the store's own, writing the default where there is
// none.
func (s *Store) meta(tx kv.Tx, name string, def uint64) (uint64, error) {
	k := s.metaKey(name)
	v, ok, err := tx.Get(k).Wait()
	if err != nil {
		return 0, err
	}
	if !ok {
		if s.opt.ReadOnly {
			return 0, ErrNoLedger
		}
		tx.Set(k, binary.BigEndian.AppendUint64(nil, def))
		return def, nil
	}
	return metaNumber(name, v)
}

func metaNumber(name string, v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: meta row %q has %d bytes", ErrFormat, name, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// keepIncarnation takes the incarnation that a batch has read.
func (b *batch) keepIncarnation(v kv.Value) error {
	raw, ok, err := v.Wait()
	if err != nil {
		return err
	}
	if !ok {
		return corrupt("incarnation", ErrNoLedger)
	}
	if b.incarnation, err = metaNumber(metaIncarnation, raw); err != nil {
		return corrupt("incarnation", err)
	}
	return nil
}

// Info reads what the store says of itself.
func (s *Store) Info(ctx context.Context) (in Info, err error) {
	_, err = kv.Transact(ctx, s.kv, s.opt.Tx, func(tx kv.Tx, _ kv.Attempt) error {
		in, err = s.prepare(tx)
		return err
	})
	if err != nil {
		return Info{}, fmt.Errorf("read the store's own rows: %w", err)
	}
	return in, nil
}

// Probe writes a row of the store's own that means nothing, and reads it back
// in another transaction. It returns how long each took.
func (s *Store) Probe(ctx context.Context) (write, read time.Duration, err error) {
	mark := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
	start := time.Now()
	_, err = kv.Transact(ctx, s.kv, s.opt.Tx, func(tx kv.Tx, _ kv.Attempt) error {
		tx.Set(s.metaKey(metaProbe), mark)
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("write a row: %w", err)
	}
	write, start = time.Since(start), time.Now()
	var found bool
	err = kv.Read(ctx, s.kv, s.opt.Tx, func(r kv.Reader) error {
		_, found, err = r.Get(s.metaKey(metaProbe)).Wait()
		return err
	})
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("read the row that was written: %w", err)
	case !found:
		return 0, 0, fmt.Errorf("read the row that was written: %w", errLost)
	}
	return write, time.Since(start), nil
}

var errLost = errors.New("it is not there")

// SetIncarnation raises the store's incarnation, which leads the key of every
// outbox pointer. It is needed when the store's stamps may begin again below
// those already given: after a restore from a backup, or a move to another
// cluster. Every transaction reads it, so running nodes follow at once.
//
// Setting the present value does nothing; a lower one is refused.
func (s *Store) SetIncarnation(ctx context.Context, n uint64) (was uint64, err error) {
	if n < 1 || n > MaxIncarnation {
		return 0, fmt.Errorf("incarnation is %d (allowed: 1 to %d)", n, uint64(MaxIncarnation))
	}
	_, err = kv.Transact(ctx, s.kv, s.opt.Tx, func(tx kv.Tx, _ kv.Attempt) error {
		in, err := s.prepare(tx)
		if err != nil {
			return err
		}
		if was = in.Incarnation; n < was {
			return fmt.Errorf("incarnation is %d (allowed: more than %d, which the store has; it never goes back)", n, was)
		}
		tx.Set(s.metaKey(metaIncarnation), binary.BigEndian.AppendUint64(nil, n))
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("set the store's incarnation: %w", err)
	}
	return was, nil
}
