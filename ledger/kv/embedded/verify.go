package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Verify reads every table of a store that was opened read-only and compares
// all checksums in it: those of rows that no key leads to any more and of
// indexes, too. The logs were read when the store was opened. Tables are read
// one after the other and past the cache, so it takes as long as the disk needs
// to read them; progress, if not nil, is told of the bytes read after each, of
// how many.
//
// The error names the first damaged file ([ErrCorrupt]). It is the context's
// when that ends, which is looked at between two tables.
func (s *Store) Verify(ctx context.Context, progress func(done, total int64)) error {
	if !s.opt.ReadOnly {
		return errors.New("verify: the store is open for writing, and its tables change")
	}
	tables, total, err := s.tables()
	if err != nil {
		return err
	}
	var done int64
	for _, t := range tables {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if err := s.verifyTable(t.path); err != nil {
			return err
		}
		done += t.size
		if progress != nil {
			progress(done, total)
		}
	}
	return nil
}

// table is a file of rows.
type table struct {
	path string
	size int64
}

// tables lists the tables that the store consists of, each once, and adds up
// their sizes. Several of the engine's tables may be parts of one file.
func (s *Store) tables() (tables []table, total int64, err error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return nil, 0, &kv.Error{Code: kv.CodeClosed, Op: "verify"}
	}
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, 0, fmt.Errorf("list tables: %w", err)
	}
	fs, seen := s.opt.FS, map[string]bool{}
	for _, level := range levels {
		for i := range level {
			path := fs.PathJoin(s.opt.Dir, dataName, level[i].BackingSSTNum.String()+".sst")
			if seen[path] {
				continue
			}
			seen[path] = true
			st, err := fs.Stat(path)
			if err != nil {
				return nil, 0, corruption(path, err)
			}
			tables = append(tables, table{path, st.Size()})
			total += st.Size()
		}
	}
	return tables, total, nil
}

// verifyTable reads one table.
func (s *Store) verifyTable(path string) (err error) {
	f, err := s.opt.FS.Open(path)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	file, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(fmt.Errorf("verify %s: %w", path, err), f.Close())
	}
	r, err := sstable.NewReader(context.Background(), file, tableOptions())
	if err != nil {
		return errors.Join(tableFault(path, err), file.Close())
	}
	err = r.ValidateBlockChecksums()
	if err != nil {
		err = tableFault(path, err)
	}
	return errors.Join(err, r.Close())
}

// tableOptions are the engine's own for reading a table.
func tableOptions() sstable.ReaderOptions {
	var po pebble.Options
	po.EnsureDefaults()
	return po.MakeReaderOptions()
}

// tableFault tells damage from a disk that does not give the file.
func tableFault(path string, err error) error {
	if damaged(err) {
		return corruption(path, err)
	}
	return fmt.Errorf("verify %s: %w", path, err)
}
