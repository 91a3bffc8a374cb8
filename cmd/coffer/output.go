package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// printJSON writes one value as one line of JSON.
func (c *cli) printJSON(v any) error { return json.NewEncoder(c.stdout).Encode(v) }

// printMessage writes a message in its JSON form. The text is formatted again
// because protojson spaces it at random.
func (c *cli) printMessage(m proto.Message) error {
	raw, err := (protojson.MarshalOptions{EmitUnpopulated: true}).Marshal(m)
	if err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	return c.printJSON(jsonRaw(raw))
}

// jsonRaw is JSON text as a value.
func jsonRaw(raw []byte) json.RawMessage { return json.RawMessage(raw) }

// printf writes a line for people to stdout.
func (c *cli) printf(format string, args ...any) { _, _ = fmt.Fprintf(c.stdout, format, args...) }

// notef writes a line for people to stderr.
func (c *cli) notef(format string, args ...any) { _, _ = fmt.Fprintf(c.stderr, format, args...) }

// tabular is a table that is filled row by row and printed to stdout.
type tabular struct {
	w table.Writer
	c *cli
}

// table starts a table. Columns named in right are aligned to the right.
func (c *cli) table(header table.Row, right ...string) *tabular {
	w := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.SeparateRows = false
	style.Options.DrawBorder = false
	style.Options.SeparateColumns = false
	w.SetStyle(style)
	w.AppendHeader(header)
	var cfg []table.ColumnConfig
	for _, name := range right {
		cfg = append(cfg, table.ColumnConfig{Name: name, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	w.SetColumnConfigs(cfg)
	return &tabular{w, c}
}

func (t *tabular) row(cells ...any) { t.w.AppendRow(cells) }

func (t *tabular) print() { t.c.printf("%s\n", t.w.Render()) }

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// clock shows a time in the tables: UTC to the millisecond.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02 15:04:05.000")
}

// rounded shortens a duration for people.
func rounded(d time.Duration) string {
	if d > time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
