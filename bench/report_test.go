package bench

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// A report is one well-formed page that loads nothing, with its plots and
// figures in it.
func TestReport(t *testing.T) {
	cfg := testConfig(t, "lifecycle", "executor")
	r, err := Run(context.Background(), cfg, memDeps())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteReport(&out, r); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	elements := map[string]int{}
	var text strings.Builder
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the report is not well formed: %v", err)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			elements[e.Name.Local]++
			for _, a := range e.Attr {
				if (a.Name.Local == "src" || a.Name.Local == "href") && !strings.HasPrefix(a.Value, "#") {
					t.Errorf("<%s> loads %s", e.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			text.Write(e)
			text.WriteByte(' ')
		}
	}
	if elements["svg"] != 3 || elements["script"] != 0 || elements["link"] != 0 {
		t.Errorf("elements %v, want 3 plots and nothing that loads or runs", elements)
	}
	for _, want := range []string{
		"lifecycle on executor", "commands/s", "audit: ok", r.Conditions.CPU, r.Conditions.Go, "cores", "fsync", "engine", "hot-key share",
		"p50", "p90", "p99", "p99.9", "max", "commit", "reverse", "Throughput", "Batch sizes", "batches ran again", "replayed", "Latency from the intended start",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	if err := WriteReport(io.Discard, &Result{}); err == nil {
		t.Error("a run without figures has a report")
	}
}
