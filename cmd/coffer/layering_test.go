package main

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/coffer-ledger/coffer/"

// mayImport is the layering: which packages of ours each folder may import,
// outside of tests. A longer folder name wins over a shorter one.
var mayImport = map[string][]string{
	"ledger":             {},
	"ledger/kv":          {},
	"ledger/kv/embedded": {"ledger/kv"},
	"ledger/kv/fdbkv":    {"ledger/kv"},
	"ledger/kv/kvtest":   {"ledger/kv"},
	// imported by tests only
	"ledger/kv/testengine": {"ledger/kv", "ledger/kv/embedded", "ledger/kv/fdbkv"},
	"ledger/work":          {"ledger"},
	"ledger/fact":          {"ledger", "ledger/work"},
	"ledger/event":         {"ledger"},
	"ledger/store":         {"ledger", "ledger/kv", "ledger/work", "ledger/fact", "ledger/event"},
	"shard/places":         {"ledger"},
	"shard":                {"shard/places", "ledger", "ledger/kv", "ledger/store"},
	"shard/intake":         {"shard/places", "ledger", "ledger/fact", "ledger/store"},
	"proto/gen":            {"proto/gen"},
	"rpc":                  {"proto/gen", "shard", "shard/places", "ledger", "ledger/kv", "ledger/store", "ledger/work", "ledger/fact", "ledger/event", "rpc/access"},
	"rpc/access":           {"ledger"},
	"rpc/inbox":            {},
	"rpc/inbox/inboxtest":  {},
	"rpc/receiver":         {"ledger", "ledger/event", "rpc/inbox"},
	"node/relay/sink":      {"ledger", "ledger/event", "rpc/receiver"},
	"node/relay":           {"node/relay/sink", "ledger", "ledger/event", "ledger/store"},
	"node":                 {"node", "node/relay", "node/relay/sink", "rpc", "rpc/access", "shard", "shard/intake", "ledger", "ledger/kv", "ledger/store", "ledger/work"},
	"bench":                {"rpc", "proto/gen", "shard", "ledger", "ledger/store", "ledger/kv"},
	"cmd": {
		"bench", "node", "rpc", "rpc/access", "rpc/receiver", "proto/gen", "shard", "ledger", "ledger/work", "ledger/event", "ledger/store", "ledger/kv", "ledger/kv/embedded", "ledger/kv/fdbkv",
	},
}

// folder finds the row of mayImport that a package belongs to. Engines and
// kvtest are rows of their own; below the others, subfolders count with them.
func folder(pkg string) string {
	for f := pkg; f != "."; f = filepath.Dir(f) {
		if _, ok := mayImport[f]; ok {
			return f
		}
	}
	return ""
}

func TestLayering(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return fs.SkipDir
		}
		ctx := build.Default
		ctx.BuildTags = []string{"fdb"}
		pkg, err := ctx.ImportDir(path, 0)
		if err != nil {
			return nil //nolint:nilerr // a folder without Go files
		}
		rel, _ := filepath.Rel(root, path)
		from := folder(rel)
		if from == "" {
			t.Errorf("package %s is in no folder of the layering", rel)
			return nil
		}
		seen[from] = true
		for _, imp := range pkg.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			if !slices.Contains(mayImport[from], folder(to)) {
				t.Errorf("package %s must not import %s", rel, to)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for f := range mayImport {
		if !seen[f] {
			t.Errorf("the layering names %s, which has no package", f)
		}
	}
}
