package store

import (
	"context"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Bounds of one page of a scan. A page is one transaction; pages are sized by
// what the last one weighed, so that each stays well below a second and a
// megabyte whatever the rows are like.
const (
	scanFirstRows = 64
	scanMaxRows   = 4096
	scanBytes     = 256 << 10
)

// scan reads a range page by page, each in a transaction of its own, and
// hands the pages to visit outside of them. So visit sees each row that was
// there all along exactly once, but not one state of the whole range: what a
// caller concludes from rows of different pages must hold while others write.
// The rows belong to scan; visit must not keep them.
func (s *Store) scan(ctx context.Context, rng kv.Range, visit func(rows []kv.KeyValue) error) error {
	limit := scanFirstRows
	var arena []byte
	var page []kv.KeyValue
	for {
		var more bool
		err := s.readTx(ctx, func(r kv.Reader) error {
			rows, m, err := r.Range(rng, kv.RangeOptions{Limit: limit}).Wait()
			if err != nil {
				return err
			}
			arena, page = copyRows(arena, page, rows)
			more = m
			return nil
		})
		if err != nil {
			return err
		}
		if len(page) > 0 {
			if err := visit(page); err != nil {
				return err
			}
		}
		if !more || len(page) == 0 {
			return nil
		}
		rng.Begin = append(append([]byte(nil), page[len(page)-1].Key...), 0)
		limit = min(max(limit*scanBytes/max(len(arena), 1), 1), 2*limit, scanMaxRows)
	}
}

// copyRows copies rows out of a transaction into one reused buffer.
func copyRows(arena []byte, page, rows []kv.KeyValue) ([]byte, []kv.KeyValue) {
	total := 0
	for _, row := range rows {
		total += len(row.Key) + len(row.Value)
	}
	if cap(arena) < total {
		arena = make([]byte, 0, total+total/4)
	}
	arena, page = arena[:0], page[:0]
	for _, row := range rows {
		k := len(arena)
		arena = append(arena, row.Key...)
		v := len(arena)
		arena = append(arena, row.Value...)
		page = append(page, kv.KeyValue{Key: arena[k:v:v], Value: arena[v:len(arena):len(arena)]})
	}
	return arena, page
}
