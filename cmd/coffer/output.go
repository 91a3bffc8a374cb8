package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// printJSON writes one value as one line of JSON.
func (c *cli) printJSON(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false) // it is no page: <budget> stays readable
	return e.Encode(v)
}

// printMessage writes a message in its JSON form. The text is formatted again
// because protojson spaces it at random.
func (c *cli) printMessage(m proto.Message) error {
	raw, err := messageJSON(m)
	if err != nil {
		return err
	}
	return c.printJSON(jsonRaw(raw))
}

// printMessageWith is printMessage with one value more, which the message does
// not have.
func (c *cli) printMessageWith(m proto.Message, name string, v any) error {
	raw, err := messageJSON(m)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	if fields[name], err = json.Marshal(v); err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	return c.printJSON(fields)
}

// messageJSON is the JSON form of a message, all of its fields included.
func messageJSON(m proto.Message) ([]byte, error) {
	raw, err := (protojson.MarshalOptions{EmitUnpopulated: true}).Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write json: %w", err)
	}
	return raw, nil
}

// jsonRaw is JSON text as a value.
func jsonRaw(raw []byte) json.RawMessage { return json.RawMessage(raw) }

// printf writes a line for people to stdout.
func (c *cli) printf(format string, args ...any) { _, _ = fmt.Fprintf(c.stdout, format, args...) }

// notef writes a line for people to stderr.
func (c *cli) notef(format string, args ...any) { _, _ = fmt.Fprintf(c.stderr, format, args...) }

// maxWidth is how wide a table of one row may be; a wider one is printed with
// one line for each value. On a terminal that goes for all tables and its width.
const maxWidth = 100

// A column of words may be folded to this width, and to no less than a part of
// its own and its longest word, so that a table fits into a terminal.
const (
	minFolded  = 12
	foldedPart = 3
)

// tabular is a table that is filled row by row and printed to stdout. Columns
// that are empty in all rows are left out.
type tabular struct {
	c      *cli
	header []string
	right  map[string]bool
	rows   [][]string
}

// table starts a table. Columns named in right are aligned to the right.
func (c *cli) table(header table.Row, right ...string) *tabular {
	t := &tabular{c: c, right: map[string]bool{}}
	for _, h := range header {
		t.header = append(t.header, fmt.Sprint(h))
	}
	for _, name := range right {
		t.right[name] = true
	}
	return t
}

func (t *tabular) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

func (t *tabular) print() {
	t.dropEmpty()
	lines := t.render(false, nil)
	room := t.c.columns
	if len(t.rows) == 1 && (room == 0 || room > maxWidth) {
		room = maxWidth
	}
	if room > 0 && widest(lines) > room {
		lines = t.squeeze(room)
	}
	for _, l := range lines {
		t.c.printf("%s\n", l)
	}
}

// squeeze draws the table no wider than room: with less space between its columns,
// with a column of words folded, or else with a line for each value. With one row
// nothing is compared down a column, and lines are the easiest to read.
func (t *tabular) squeeze(room int) []string {
	if len(t.rows) == 1 {
		return t.vertical()
	}
	lines := t.render(true, nil)
	over := widest(lines) - room
	if over <= 0 {
		return lines
	}
	if fold := t.fold(over); fold != nil {
		return t.render(true, fold)
	}
	return t.vertical()
}

// widest is the width of the longest line on a terminal.
func widest(lines []string) int {
	most := 0
	for _, l := range lines {
		most = max(most, text.StringWidthWithoutEscSequences(l))
	}
	return most
}

// fold makes the widest column of words narrower by over, nil where that would
// be too narrow to read, or cut a word: an amount may stand among them.
func (t *tabular) fold(over int) *table.ColumnConfig {
	at, wide, longest := -1, 0, 0
	for i, h := range t.header {
		words, most, word := false, 0, 0
		cells := []string{h}
		for _, r := range t.rows {
			words = words || strings.Contains(r[i], " ")
			cells = append(cells, r[i])
		}
		for _, cell := range cells {
			most, word = max(most, widest([]string{cell})), max(word, widest(strings.Fields(cell)))
		}
		if words && most > wide {
			at, wide, longest = i, most, word
		}
	}
	if at < 0 || wide-over < max(minFolded, wide/foldedPart, longest) {
		return nil
	}
	return &table.ColumnConfig{Number: at + 1, WidthMax: wide - over, WidthMaxEnforcer: text.WrapSoft}
}

// dropEmpty takes out the columns in which no row has anything.
func (t *tabular) dropEmpty() {
	if len(t.rows) == 0 {
		return
	}
	var keep []int
	for i := range t.header {
		if slices.ContainsFunc(t.rows, func(r []string) bool { return i < len(r) && r[i] != "" }) {
			keep = append(keep, i)
		}
	}
	pick := func(from []string) []string {
		out := make([]string, 0, len(keep))
		for _, i := range keep {
			out = append(out, from[i])
		}
		return out
	}
	t.header = pick(t.header)
	for i, r := range t.rows {
		t.rows[i] = pick(r)
	}
}

// render draws the table, tight with one space between columns, and with a column
// folded where fold is one; its lines end with no spaces.
func (t *tabular) render(tight bool, fold *table.ColumnConfig) []string {
	w := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.SeparateRows = false
	style.Options.DrawBorder = false
	style.Options.SeparateColumns = false
	if tight {
		style.Box.PaddingLeft = ""
	}
	w.SetStyle(style)
	w.AppendHeader(anyRow(t.header))
	var cfg []table.ColumnConfig
	for i, name := range t.header {
		if t.right[name] {
			cfg = append(cfg, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	if fold != nil {
		cfg = append(cfg, *fold)
	}
	w.SetColumnConfigs(cfg)
	for _, r := range t.rows {
		w.AppendRow(anyRow(r))
	}
	lines := strings.Split(w.Render(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return lines
}

func anyRow(cells []string) table.Row {
	out := make(table.Row, len(cells))
	for i, c := range cells {
		out[i] = c
	}
	return out
}

// vertical writes a line for each value, and an empty one between rows.
func (t *tabular) vertical() []string {
	wide := 0
	for _, h := range t.header {
		wide = max(wide, len(h))
	}
	var out []string
	for n, r := range t.rows {
		if n > 0 {
			out = append(out, "")
		}
		for i, h := range t.header {
			if r[i] != "" {
				out = append(out, fmt.Sprintf(" %-*s  %s", wide, h, r[i]))
			}
		}
	}
	return out
}

// columnsOf is the width of the terminal that w is, 0 where it is none.
func columnsOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	wide, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return wide
}

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// clock shows a time in the tables: UTC to the millisecond, in the form that
// --cutoff takes.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// rounded shortens a duration for people.
func rounded(d time.Duration) string {
	if d > time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
