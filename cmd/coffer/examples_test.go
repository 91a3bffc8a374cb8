package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var (
	quoted      = regexp.MustCompile(`'[^']*'|[^\s']+`)
	continued   = regexp.MustCompile(`\\\n\s+`)
	redirection = regexp.MustCompile(`\s>\S+`)
	// readmeCommand is one in a block, with or without a prompt, up to a comment.
	readmeCommand = regexp.MustCompile(`(?m)^ {4}(?:\$ )?(?:\./)?(coffer [a-z-][^|&#\n]*)`)
)

// words splits a command line as a shell does, as far as the pages need it.
func words(line string) []string {
	var out []string
	for _, w := range quoted.FindAllString(redirection.ReplaceAllString(line, ""), -1) {
		out = append(out, strings.Trim(w, "'"))
	}
	return out
}

// Each example in a command's help is a command line of that command.
func TestHelpExamplesParse(t *testing.T) {
	var a app
	parser, err := kong.New(&a, kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("quote.json", []byte("{}"), 0o600); err != nil { // an example names it
		t.Fatal(err)
	}
	examples := 0
	for _, n := range parser.Model.Leaves(true) {
		path := strings.Fields(strings.Split(n.Path(), "<")[0])
		out := continued.ReplaceAllString(must(t, append(slices.Clone(path), "--help")...), " ")
		for _, m := range docCommand.FindAllStringSubmatch(out, -1) {
			examples++
			args := words(m[1])[1:]
			of := path
			if path[0] == "bench" && strings.HasPrefix(args[1], "--") {
				of = path[:1] // run is what bench does
			}
			if err := parses(m[1]); err != nil || len(args) < len(of) || !slices.Equal(args[:len(of)], of) {
				t.Errorf("help of %s has the example %q: %v", path, m[1], err)
			}
		}
	}
	if examples < 80 {
		t.Errorf("only %d examples", examples)
	}
}

// Each command line in the README is one of coffer.
func TestReadmeCommandsParse(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := readmeCommand.FindAllStringSubmatch(string(raw), -1)
	if len(found) < 50 {
		t.Errorf("only %d commands", len(found))
	}
	for _, m := range found {
		if err := parses(m[1]); err != nil {
			t.Errorf("README has %q: %v", m[1], err)
		}
	}
}

// The page of the schema names each of its files.
func TestProtoPageNamesItsFiles(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "proto", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "proto", "coffer", "v1", "*.proto"))
	if err != nil || len(files) < 10 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, f := range files {
		contains(t, string(page), "| `coffer/v1/"+filepath.Base(f)+"` |")
	}
}

// The README's sample of the demo drops no line without saying so.
func TestReadmeDemoIsWhole(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range demoLines {
		if !regexp.MustCompile(`(?m)^ {5}` + regexp.QuoteMeta(l.text) + ` +\d+$`).Match(raw) {
			t.Errorf("README lacks the line %q", l.text)
		}
	}
}

// Faults of a start or a call that are usual for newcomers say what to do next.
func TestFirstFaultsSayWhatNext(t *testing.T) {
	fails(t, exitUsage, "no such file or directory; coffer serve --print-config prints one", "serve", "--config", filepath.Join(t.TempDir(), "coffer.yaml"))
	s := serve(t, t.TempDir())
	fails(t, exitFailed, "404 Not Found; see that --server is the base URL of a Coffer server, such as http://127.0.0.1:7420", "budget", "list", "--server", s.url+"/coffer")
}
