package bench

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Plots of a report: inline SVG, so that it opens offline.
const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 8 * vg.Centimeter
)

var (
	plotBlue = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	plotRed  = color.RGBA{R: 0xb0, G: 0x30, B: 0x30, A: 0xff}
	plotGrey = color.RGBA{R: 0xd8, G: 0xd8, B: 0xd8, A: 0xff}
)

// newPlot has no title: the page has a heading above it.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Y.Tick.Marker = plot.TickerFunc(countTicks)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = plotGrey, plotGrey
	p.Add(grid)
	return p
}

// countTicks are gonum's own, without digits after a point that say nothing.
func countTicks(lo, hi float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(lo, hi)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = axisNumber(t.Value)
		}
	}
	return ticks
}

// logTicks are at 1, 2 and 5 times the powers of ten within the axis, and at
// its ends where fewer than two of those are.
func logTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Floor(math.Log10(lo)); power <= math.Log10(hi); power++ {
		for _, step := range []float64{1, 2, 5} {
			if v := step * math.Pow(10, power); v >= lo && v <= hi {
				ticks = append(ticks, plot.Tick{Value: v, Label: axisNumber(v)})
			}
		}
	}
	if len(ticks) < 2 {
		ticks = []plot.Tick{{Value: lo, Label: axisNumber(lo)}, {Value: hi, Label: axisNumber(hi)}}
	}
	return ticks
}

// axisNumber is a number with the digits that a reader of an axis wants.
func axisNumber(v float64) string {
	if math.Abs(v) < 1000 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// svg draws a plot as an element for a page, without the XML prolog.
func svg(p *plot.Plot) (template.HTML, error) {
	w, err := p.WriterTo(plotWidth, plotHeight, "svg")
	if err != nil {
		return "", fmt.Errorf("draw plot: %w", err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw plot: %w", err)
	}
	at := bytes.Index(b.Bytes(), []byte("<svg"))
	if at < 0 {
		return "", fmt.Errorf("draw plot: the drawing is no SVG")
	}
	return template.HTML(b.Bytes()[at:]), nil //nolint:gosec // our own drawing
}

// line adds a curve; points without a finite value are left out.
func line(p *plot.Plot, pts plotter.XYs, c color.Color, legend string) error {
	if len(pts) == 0 {
		return nil
	}
	l, err := plotter.NewLine(pts)
	if err != nil {
		return fmt.Errorf("draw %s: %w", legend, err)
	}
	l.Color, l.Width = c, vg.Points(1.5)
	p.Add(l)
	p.Legend.Add(legend, l)
	return nil
}

// throughputPlot is answers a second over time, and where the warm-up ends.
func throughputPlot(r *Result) (template.HTML, error) {
	p := newPlot("seconds", "commands/s")
	p.Legend.Top = true
	var ok, bad plotter.XYs
	anyBad := false
	for _, pt := range r.Timeline {
		ok = append(ok, plotter.XY{X: pt.At, Y: float64(pt.Commands) / r.IntervalSeconds})
		bad = append(bad, plotter.XY{X: pt.At, Y: float64(pt.Refused+pt.Failed) / r.IntervalSeconds})
		anyBad = anyBad || pt.Refused+pt.Failed > 0
	}
	if err := line(p, ok, plotBlue, "accepted"); err != nil {
		return "", err
	}
	if anyBad {
		if err := line(p, bad, plotRed, "refused or failed"); err != nil {
			return "", err
		}
	}
	p.Y.Min = 0
	if w := r.Config.Warmup.Seconds(); w > 0 && p.Y.Max > 0 {
		if err := line(p, plotter.XYs{{X: w}, {X: w, Y: p.Y.Max}}, color.Black, "counted from here"); err != nil {
			return "", err
		}
	}
	return svg(p)
}

// latencyPlot is latency by percentile; each unit to the right is one nine
// more.
func latencyPlot(r *Result) (template.HTML, error) {
	p := newPlot("percentile", "milliseconds")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	var pts plotter.XYs
	for nines := 0.0; nines <= 4; nines += 0.05 {
		q := 100 * (1 - math.Pow(10, -nines))
		if ms := float64(r.hist.ValueAtQuantile(q)) / 1000; ms > 0 {
			pts = append(pts, plotter.XY{X: nines, Y: ms})
		}
	}
	ticks := plot.ConstantTicks{}
	for i, name := range []string{"0", "90", "99", "99.9", "99.99"} {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: name})
	}
	p.X.Tick.Marker = ticks
	if err := line(p, pts, plotBlue, "tasks"); err != nil {
		return "", err
	}
	p.X.Max = max(p.X.Max, float64(len(ticks)-1)) + 0.1 // room for the last label
	if p.Y.Min == p.Y.Max {                             // a flat curve has no logarithmic axis
		p.Y.Min, p.Y.Max = p.Y.Min/2, p.Y.Max*2
	}
	return svg(p)
}

// batchPlot is how many batches had how many commands.
func batchPlot(r *Result) (template.HTML, error) {
	if r.Batches == nil {
		return "", nil
	}
	p := newPlot("commands in a batch, up to", "batches")
	var values plotter.Values
	var names []string
	for _, s := range r.Batches.Sizes {
		values = append(values, float64(s.Count))
		names = append(names, strconv.Itoa(s.UpTo))
	}
	bars, err := plotter.NewBarChart(values, vg.Points(24))
	if err != nil {
		return "", fmt.Errorf("draw batches: %w", err)
	}
	bars.Color, bars.LineStyle.Width = plotBlue, 0
	p.Add(bars)
	p.NominalX(names...)
	p.Y.Min = 0
	return svg(p)
}
