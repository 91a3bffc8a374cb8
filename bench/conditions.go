package bench

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Conditions are under what a figure was taken. Without them it says nothing.
type Conditions struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	// GoProcs is GOMAXPROCS, which may differ from the cores.
	GoProcs int    `json:"gomaxprocs"`
	OS      string `json:"os"`
	Go      string `json:"go"`
	Coffer  string `json:"coffer,omitempty"`
	// Engine is what keeps the data, and how durable an answer is.
	Engine string `json:"engine"`
	// FsyncMicros is the median time the disk takes to sync 4 KiB, in
	// microseconds; 0 where the target is elsewhere.
	FsyncMicros int64 `json:"fsync_p50_micros,omitempty"`
	// SameMachine: load and target share the cores.
	SameMachine bool      `json:"same_machine"`
	Time        time.Time `json:"time"`
}

func conditions(cfg Config, deps Deps, t Target) Conditions {
	c := Conditions{
		CPU: cpuName(), Cores: runtime.NumCPU(), GoProcs: runtime.GOMAXPROCS(0), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Coffer: deps.Version,
		Engine: t.Engine(), SameMachine: cfg.Target != "server" && cfg.DSN == "", Time: time.Now().UTC().Truncate(time.Second),
	}
	if c.SameMachine && cfg.Target != "noop" {
		c.FsyncMicros = fsyncMicros(cfg)
	}
	return c
}

// fsyncProbes is how many syncs the median is taken from.
const fsyncProbes = 31

// fsyncMicros measures the disk that the store is on. 0 says that it cannot.
func fsyncMicros(cfg Config) int64 {
	dir, remove, err := tempDir(cfg)
	if err != nil {
		return 0
	}
	defer remove() //nolint:errcheck // a temporary directory
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // goes with its directory
	page := make([]byte, 4096)
	took := make([]time.Duration, fsyncProbes)
	for i := range took {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0
		}
		if err := f.Sync(); err != nil {
			return 0
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[len(took)/2].Microseconds()
}

// cpuName is the processor's name where the system tells it.
func cpuName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close() //nolint:errcheck // read only
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// residentBytes is the memory of this process, 0 where the system does not
// tell.
func residentBytes() uint64 {
	b, err := os.ReadFile("/proc/self/statm") // in pages: size, resident, …
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
