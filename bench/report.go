package bench

import (
	_ "embed" // the page
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
)

//go:embed report.html
var reportPage string

// named is one row of a table of words.
type named struct{ Name, Value string }

// latencyRow is one row of the table of latencies.
type latencyRow struct {
	Name string
	P    Percentiles
}

// page is what the template gets.
type page struct {
	R                            *Result
	Workload, Target, Help, Rate string
	Conditions, Contention       []named
	Latencies                    []latencyRow
	Throughput, Latency, Batches template.HTML
}

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"ms":     func(seconds float64) string { return strconv.FormatFloat(seconds*1000, 'f', 3, 64) },
	"number": func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) },
}).Parse(reportPage))

// WriteReport writes one self-contained page about a run: it loads nothing.
// The result must be one that Run gave.
func WriteReport(w io.Writer, r *Result) error {
	if r.hist == nil || r.Audit == nil {
		return errors.New("report: the result is not one of a finished run")
	}
	p := page{
		R: r, Workload: r.Config.Workload, Target: r.Config.Target, Help: WorkloadHelp(r.Config.Workload) + "; " + TargetHelp(r.Config.Target),
		Rate: r.Config.rateName(), Conditions: r.conditionRows(), Contention: r.contentionRows(),
		Latencies: []latencyRow{{"whole tasks", r.Latency}},
	}
	for _, name := range slices.Sorted(maps.Keys(r.Operations)) {
		p.Latencies = append(p.Latencies, latencyRow{name, r.Operations[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Phases)) {
		p.Latencies = append(p.Latencies, latencyRow{"phase " + name, r.Phases[name]})
	}
	var err error
	if p.Throughput, err = throughputPlot(r); err != nil {
		return err
	}
	if p.Latency, err = latencyPlot(r); err != nil {
		return err
	}
	if p.Batches, err = batchPlot(r); err != nil {
		return err
	}
	if err := reportTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (r *Result) conditionRows() []named {
	c := &r.Conditions
	fsync := "not measured: the store is elsewhere, or there is none"
	if c.FsyncMicros > 0 {
		fsync = (time.Duration(c.FsyncMicros) * time.Microsecond).String() + " at the median for 4 KiB"
	}
	where := "load and target share the cores"
	if !c.SameMachine {
		where = "the target is its own; the cores are the load's"
	}
	return []named{
		{"CPU", c.CPU},
		{"cores", strconv.Itoa(c.Cores)},
		{"GOMAXPROCS", strconv.Itoa(c.GoProcs)},
		{"cores are", where},
		{"system", c.OS},
		{"Go", c.Go},
		{"Coffer", c.Coffer},
		{"engine", c.Engine},
		{"fsync", fsync},
		{"callers", strconv.Itoa(r.Config.Callers)},
		{"client", r.Config.clientName()},
		{"arrivals", string(r.Config.Arrivals) + ", rate " + r.Config.rateName()},
		{"warm-up", r.Config.Warmup.String()},
		{"seed", strconv.FormatUint(r.Config.Seed, 10)},
		{"taken", c.Time.Format(time.RFC3339)},
	}
}

func (r *Result) contentionRows() []named {
	rows := []named{
		{"hot-key share", fmt.Sprintf("%.1f %% on %s", 100*r.HotKeyShare, r.HotKey)},
		{"arrivals that started late", fmt.Sprintf("%.2f %%", 100*r.Late)},
	}
	if r.Batches == nil {
		return append(rows, named{"batches", "not told by this target"})
	}
	rows = append(rows, named{"batches", fmt.Sprintf("%d of %.1f commands on average", r.Batches.Count, r.Batches.Mean)})
	conflicts := "not told by this target"
	if r.ConflictRate >= 0 {
		conflicts = fmt.Sprintf("%.2f %% of the batches ran again", 100*r.ConflictRate)
	}
	return append(rows, named{"conflicts", conflicts})
}

// Summary is a run in rows of name and value, for a table.
func (r *Result) Summary() [][2]string {
	rows := [][2]string{
		{"commands/s", strconv.FormatFloat(r.CommandsPerSecond, 'f', 0, 64)},
		{"tasks/s", strconv.FormatFloat(r.TasksPerSecond, 'f', 0, 64)},
		{"commands", fmt.Sprintf("%d in %.1f s", r.Commands, r.Seconds)},
	}
	if r.PeakTasksPerSecond > 0 {
		rows = append(rows, [2]string{"peak tasks/s", strconv.FormatFloat(r.PeakTasksPerSecond, 'f', 0, 64)})
	}
	rows = append(rows, [2]string{"p99 ÷ p50", strconv.FormatFloat(r.TailRatio, 'f', 2, 64)})
	if r.StormRatio > 0 {
		rows = append(rows, [2]string{"storm p99 ÷ quiet p99", strconv.FormatFloat(r.StormRatio, 'f', 2, 64)})
	}
	for _, n := range r.contentionRows() {
		rows = append(rows, [2]string{n.Name, n.Value})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Outcomes)) {
		rows = append(rows, [2]string{"answers " + name, strconv.FormatUint(r.Outcomes[name], 10)})
	}
	c := &r.Conditions
	rows = append(rows, [2]string{"engine", c.Engine},
		[2]string{"machine", fmt.Sprintf("%s, %d cores, %s, %s", c.CPU, c.Cores, c.OS, c.Go)})
	if c.FsyncMicros > 0 {
		rows = append(rows, [2]string{"fsync of 4 KiB, p50", (time.Duration(c.FsyncMicros) * time.Microsecond).String()})
	}
	if r.ResidentBytes > 0 {
		rows = append(rows, [2]string{"resident memory, load included", fmt.Sprintf("%d MiB", r.ResidentBytes>>20)})
	}
	return rows
}
