package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// importColumns are the columns a file must have, in any order. Others are
// ignored.
var importColumns = [...]string{"order_id", "benefit_key", "amount_minor", "currency"}

// row is one record of the file, as far as it can be told without the server.
type row struct {
	line           int
	order, benefit string
	amount         int64
	currency       string
	record         []string // all fields as they stand in the file
}

// reject is one row that was not taken and why.
type reject struct {
	Line   int    `json:"line"`
	Field  string `json:"field,omitempty"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Order  string `json:"order_id,omitempty"`
	Key    string `json:"benefit_key,omitempty"`

	record []string // all fields; nil where they cannot be told apart
	raw    string   // the line then
}

// codeBrokenRow is the code of a row that is not CSV, or not of this file.
const codeBrokenRow = "BROKEN_ROW"

// rows reads a file record by record.
type rows struct {
	lines lineReader
	line  int // where the current record begins
	names []string
	head  []string                // the names as they stand in the file
	at    [len(importColumns)]int // column of each of importColumns
}

// openRows reads the header. Its errors say what is wrong with the file as a
// whole: empty, not UTF-8, a column missing or there twice.
func openRows(r io.Reader) (*rows, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	out := &rows{lines: lineReader{in: in}}
	head, err := in.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read header: %w", err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0xEF, 0xBB, 0xBF}):
		_, _ = in.Discard(3)
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}), bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		return nil, errors.New("file is UTF-16; save it as UTF-8 CSV; nothing was sent")
	}
	names, rej, err := out.record()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("file is empty; its first line must name the columns %s", strings.Join(importColumns[:], ","))
	case err != nil:
		return nil, err
	case rej != nil:
		return nil, fmt.Errorf("line %d: header cannot be read: %s; nothing was sent", rej.Line, rej.Reason)
	}
	out.head = names
	for _, n := range names {
		out.names = append(out.names, strings.ToLower(strings.TrimSpace(n)))
	}
	return out, out.locate()
}

// locate finds the columns in the header.
func (r *rows) locate() error {
	var missing []string
	for i, want := range importColumns {
		r.at[i] = -1
		for j, have := range r.names {
			if have != want {
				continue
			}
			if r.at[i] >= 0 {
				return fmt.Errorf("line %d: column %s is there twice; keep one; nothing was sent", r.line, want)
			}
			r.at[i] = j
		}
		if r.at[i] < 0 {
			missing = append(missing, want)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	found := strings.Join(r.names, ",")
	hint := ""
	if len(r.names) == 1 && strings.ContainsAny(found, ";\t|") {
		hint = "; separate fields by commas"
	}
	return fmt.Errorf("line %d: column %s is missing (found: %.200q)%s; nothing was sent", r.line, strings.Join(missing, ", "), found, hint)
}

// next gives the next row, or the reason why it is broken, or io.EOF. Any
// other error means that the file cannot be read further.
func (r *rows) next() (row, *reject, error) {
	rec, rej, err := r.record()
	if err != nil || rej != nil {
		return row{}, rej, err
	}
	out := row{line: r.line, order: rec[r.at[0]], benefit: rec[r.at[1]], currency: strings.TrimSpace(rec[r.at[3]]), record: rec}
	for i, v := range [...]string{out.order, out.benefit, "", out.currency} {
		if !utf8.ValidString(v) {
			return row{}, &reject{
				Line: out.line, Field: importColumns[i], Code: "INVALID_ARGUMENT", record: rec,
				Reason: fmt.Sprintf("%s %.40q is not valid UTF-8 (allowed: UTF-8)", importColumns[i], v),
			}, nil
		}
	}
	amount := strings.TrimSpace(rec[r.at[2]])
	if out.amount, err = strconv.ParseInt(amount, 10, 64); err != nil {
		why := "is not a whole number of minor units"
		if errors.Is(err, strconv.ErrRange) {
			why = "is out of range"
		}
		return row{}, &reject{
			Line: out.line, Field: "amount_minor", Code: "INVALID_ARGUMENT", Order: out.order, Key: out.benefit, record: rec,
			Reason: fmt.Sprintf("amount_minor %.40q %s (allowed: 1 to 9223372036854775807)", amount, why),
		}, nil
	}
	return out, nil, nil
}
