package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/coffer-ledger/coffer/ledger/kv/fdbkv"
	"github.com/coffer-ledger/coffer/node"
)

const deployDir = "../../deploy"

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(deployDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// parses says whether coffer takes a command line. It runs nothing.
func parses(line string) error {
	var a app
	parser, err := kong.New(&a, kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) {}), kong.Bind(&cli{globals: &a.globals}))
	if err != nil {
		return err
	}
	args := words(line)
	if len(args) == 0 || filepath.Base(args[0]) != "coffer" {
		return errors.New("is no command line of coffer")
	}
	_, err = parser.Parse(args[1:])
	return err
}

var (
	docCommand  = regexp.MustCompile(`(?m)^ {4,}(coffer [^|&\n]+)$`)
	codeCommand = regexp.MustCompile("`(coffer [a-z][^`]*)`")
	metricName  = regexp.MustCompile("`(coffer_[a-z_]+)`")
	linkTarget  = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// Every command line, metric and file that the pages name is there.
func TestDeployPages(t *testing.T) {
	s := serve(t, t.TempDir())
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	metrics := string(raw)
	commands := 0
	err = filepath.WalkDir(deployDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		raw, err := os.ReadFile(path)
		text := string(raw)
		for _, m := range slices.Concat(docCommand.FindAllStringSubmatch(text, -1), codeCommand.FindAllStringSubmatch(text, -1)) {
			commands++
			line := m[1]
			if cmd := strings.Fields(line); len(cmd) == 2 { // a command as such, named in a sentence
				line += " --help"
			}
			if err := parses(line); err != nil {
				t.Errorf("%s: %q: %v", path, m[1], err)
			}
		}
		for _, m := range metricName.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(metrics, "\n"+m[1]+" ") && !slices.Contains(fdbOnly, m[1]) {
				t.Errorf("%s names the metric %s, which a node does not have", path, m[1])
			}
		}
		for _, m := range linkTarget.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
		return err
	})
	if err != nil || commands < 10 {
		t.Errorf("%d command lines found, %v", commands, err)
	}
}

// fdbOnly are the metrics of the FoundationDB engine alone.
var fdbOnly = []string{"coffer_kv_throttled_total", "coffer_kv_transactions"}

func TestFDBMetrics(t *testing.T) {
	var names []string
	for s := range fdbFigures(fdbkv.Stats{}) {
		names = append(names, s.desc.String())
	}
	for _, want := range append(fdbOnly, "coffer_kv_conflicts_total", "coffer_kv_unknown_total", "coffer_kv_too_old_total", "coffer_kv_watches", "coffer_kv_commits_total") {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, `"`+want+`"`) }) {
			t.Errorf("the FoundationDB engine has no metric %s", want)
		}
	}
}

// Configuration files load as they are, and every setting in them exists.
func TestDeployConfigs(t *testing.T) {
	for file, store := range map[string]string{
		"compose/coffer.yaml": "fdb:/var/lib/coffer/fdb.cluster",
		"systemd/coffer.yaml": "fdb:/var/lib/coffer/fdb.cluster",
	} {
		cfg := node.DefaultConfig()
		cfg.NodeID = "coffer1" // the host's name, or set by the environment
		if err := cfg.LoadFile(filepath.Join(deployDir, file)); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if loc, err := parseStore(cfg.Store); err != nil || loc.String() != store {
			t.Errorf("%s: store %q, %v; want %q", file, cfg.Store, err, store)
		}
	}
}

// composeFile is what the test looks at of a compose file.
type composeFile struct {
	Services map[string]struct {
		Image       string
		Entrypoint  []string
		Command     []string
		Environment map[string]string
		Volumes     []string
		Healthcheck struct{ Test []string }
		DependsOn   any `yaml:"depends_on"`
		Build       struct {
			Context, Dockerfile string
			Args                map[string]string
		}
	}
	Volumes map[string]any
}

func TestDeployCompose(t *testing.T) {
	var c composeFile
	if err := yaml.Unmarshal([]byte(readDeploy(t, "compose/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	coordinators := strings.TrimSpace(readDeploy(t, "compose/fdb.cluster"))
	docker := readDeploy(t, "Dockerfile")
	nodes, databases := 0, 0
	for name, s := range c.Services {
		if where, ok := s.Environment["FDB_CLUSTER_FILE_CONTENTS"]; ok && where != coordinators {
			t.Errorf("%s has the coordinators %s, the file fdb.cluster %s", name, where, coordinators)
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			_, volume := c.Volumes[from]
			if _, err := os.Stat(filepath.Join(deployDir, "compose", from)); !volume && err != nil {
				t.Errorf("%s mounts %s, which is neither a volume nor a file", name, from)
			}
		}
		if strings.HasPrefix(name, "fdb") {
			databases++
		}
		if s.Image != "coffer:fdb" {
			continue
		}
		nodes++
		for arg := range s.Build.Args {
			if !strings.Contains(docker, "\nARG "+arg) {
				t.Errorf("%s gives the build the argument %s, which the Dockerfile does not have", name, arg)
			}
		}
		if _, err := os.Stat(filepath.Join(deployDir, "compose", s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var env []string
		for k, v := range s.Environment {
			env = append(env, k+"="+v)
		}
		cfg := node.DefaultConfig()
		if unknown, err := cfg.LoadEnv(env); err != nil || len(unknown) > 0 {
			t.Errorf("%s: environment %v: unknown %v, %v", name, env, unknown, err)
		}
		_, line, _ := strings.Cut(strings.Join(s.Entrypoint, " "), "exec ")
		if err := parses(line); err != nil || cfg.NodeID != name {
			t.Errorf("%s runs %q as node %s: %v", name, line, cfg.NodeID, err)
		}
		if err := parses(strings.Join(s.Healthcheck.Test[1:], " ")); err != nil {
			t.Errorf("%s: health check %q: %v", name, s.Healthcheck.Test, err)
		}
	}
	if nodes != 3 || databases != 3 || strings.Count(coordinators, ",") != 2 {
		t.Errorf("%d nodes and %d databases, coordinators %s; want three of each", nodes, databases, coordinators)
	}
}

func TestDeployUnits(t *testing.T) {
	units, err := filepath.Glob(filepath.Join(deployDir, "systemd", "*.service"))
	if err != nil || len(units) < 2 {
		t.Fatalf("units %v, %v", units, err)
	}
	for _, u := range units {
		raw, err := os.ReadFile(u)
		if err != nil {
			t.Fatal(err)
		}
		starts := 0
		for line := range strings.Lines(string(raw)) {
			if cmd, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
				starts++
				if err := parses(cmd); err != nil {
					t.Errorf("%s: %q: %v", u, cmd, err)
				}
			}
		}
		if starts != 1 {
			t.Errorf("%s has %d lines ExecStart, want 1", u, starts)
		}
	}
}

func TestDeployDockerfile(t *testing.T) {
	text := readDeploy(t, "Dockerfile")
	entry := regexp.MustCompile(`(?m)^(?:ENTRYPOINT|CMD) (\[.*\])$`).FindAllStringSubmatch(text, -1)
	var words []string
	for _, m := range entry {
		var part []string
		if err := json.Unmarshal([]byte(m[1]), &part); err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		words = append(words, part...)
	}
	if err := parses(strings.Join(words, " ")); err != nil || len(entry) != 2 {
		t.Errorf("the image runs %q: %v", words, err)
	}
	for _, m := range regexp.MustCompile(`\$\{([A-Z0-9_]+)\}`).FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`(?m)^ARG ` + m[1] + `\b`).MatchString(text) {
			t.Errorf("the Dockerfile uses ${%s} and has no such ARG", m[1])
		}
	}
}

// What the pages run in containers is what coffer takes, and all pages put an
// embedded store in one place.
func TestDeployContainers(t *testing.T) {
	page := readDeploy(t, "README.md")
	inside := regexp.MustCompile(`(?m)^ {4}docker .* (?:exec coffer\d coffer|coffer:fdb) ([a-z].*)$`).FindAllStringSubmatch(page, -1)
	for _, m := range inside {
		if err := parses("coffer " + m[1]); err != nil {
			t.Errorf("a container runs %q: %v", m[1], err)
		}
	}
	if len(inside) != 2 {
		t.Errorf("%d command lines in containers, want 2", len(inside))
	}
	place := regexp.MustCompile(`(?:store[":,]* "?|embedded:)(/var/lib/[^\s"]*)`)
	found := 0
	for _, name := range []string{"README.md", "Dockerfile", "../README.md", "systemd/coffer.yaml", "systemd/coffer.service"} {
		for _, m := range place.FindAllStringSubmatch(readDeploy(t, name), -1) {
			found++
			if m[1] != "/var/lib/coffer/store" {
				t.Errorf("%s has a store at %s, want /var/lib/coffer/store as everywhere", name, m[1])
			}
		}
	}
	if found != 6 {
		t.Errorf("%d places of embedded stores, want 6", found)
	}
}

// The regions are what FoundationDB's fileconfigure takes: at most two, one
// datacenter with data in each, and at first one of them that may be active.
func TestDeployRegions(t *testing.T) {
	for file, active := range map[string]int{"fdb/regions.json": 2, "fdb/regions-first.json": 1} {
		var doc struct {
			Regions []struct {
				Datacenters []struct {
					ID            string `json:"id"`
					Priority      int    `json:"priority"`
					Satellite     int    `json:"satellite"`
					SatelliteLogs int    `json:"satellite_logs"`
				} `json:"datacenters"`
				Mode string `json:"satellite_redundancy_mode"`
				Logs int    `json:"satellite_logs"`
			} `json:"regions"`
		}
		d := json.NewDecoder(strings.NewReader(readDeploy(t, file)))
		d.DisallowUnknownFields()
		if err := d.Decode(&doc); err != nil || len(doc.Regions) != 2 {
			t.Errorf("%s: %d regions, %v", file, len(doc.Regions), err)
			continue
		}
		able := 0
		for _, r := range doc.Regions {
			full := 0
			for _, dc := range r.Datacenters {
				if dc.Satellite == 0 {
					full++
					if dc.Priority >= 0 {
						able++
					}
				}
			}
			if full != 1 || r.Mode != "one_satellite_double" {
				t.Errorf("%s: a region with %d datacenters that hold the data and mode %s", file, full, r.Mode)
			}
		}
		if able != active {
			t.Errorf("%s: %d datacenters may be active, want %d", file, able, active)
		}
	}
}
