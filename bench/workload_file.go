package bench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/coffer-ledger/coffer/ledger"
)

// fileColumns are the columns a file of orders must have, in any order. The
// column budget may be left out: then all orders share one. Others are ignored.
var fileColumns = []string{"order_id", "benefit_key", "amount_minor", "budget"}

// file is the orders of a CSV file, each reserved and committed. It begins
// again at the end of the file, with new names, while the run goes on.
type file struct {
	plain
	rows []ledger.Command
}

func newFile(cfg Config, round int) (workload, error) {
	f, err := os.Open(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("open orders: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	w := &file{plain: newPlain(cfg, round, 16, ledger.Policy{})}
	if err := w.read(f); err != nil {
		return nil, fmt.Errorf("read %s: %w", cfg.File, err)
	}
	return w, nil
}

func (f *file) read(in io.Reader) error {
	r := csv.NewReader(in)
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	var at [4]int
	for i, name := range fileColumns {
		if at[i] = slices.Index(head, name); at[i] < 0 && name != "budget" {
			return fmt.Errorf("header has no column %s (allowed: order_id, benefit_key, amount_minor and, if there are several, budget)", name)
		}
	}
	main := f.specs[0]
	seen := map[string]bool{}
	f.specs = nil
	for {
		rec, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		line, _ := r.FieldPos(0)
		minor, err := strconv.ParseInt(rec[at[2]], 10, 64)
		if err != nil || minor <= 0 || minor > plenty/1024 {
			return fmt.Errorf("line %d: amount_minor is %.40q (allowed: whole minor units, 1 to %d)", line, rec[at[2]], plenty/1024)
		}
		name := "main"
		if at[3] >= 0 {
			name = rec[at[3]]
		}
		c := f.reserve(f.names.budget(name), rec[at[0]], minor, holdTTL)
		c.Key.Benefit = rec[at[1]]
		n := c.Normalize()
		n.Key.Order = f.names.order(0) + "-" + c.Key.Order
		if rej := n.Validate(); rej != nil {
			return fmt.Errorf("line %d: %w", line, rej)
		}
		if !seen[name] {
			seen[name] = true
			s := main
			s.id = c.Budget
			f.specs = append(f.specs, s)
		}
		f.rows = append(f.rows, c)
	}
	if len(f.rows) == 0 {
		return errors.New("there are no orders in it")
	}
	return nil
}

// task is the i-th order, counted around the file: a repeated row of a file is
// a repeated order, a second time around it is another one.
func (f *file) task(i uint64) task {
	n := uint64(len(f.rows))
	c := f.rows[i%n]
	c.Key.Order = f.names.order(i/n) + "-" + c.Key.Order
	return f.pair(c)
}
