package fdbkv

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"testing"
)

const binding = "github.com/apple/foundationdb/bindings/go/src/fdb"

// cgoImporter type-checks Apple's binding from its source without the C
// library, and takes every other package from the ordinary importer.
type cgoImporter struct {
	t     *testing.T
	fset  *token.FileSet
	other types.Importer
	fdb   *types.Package
}

func (c *cgoImporter) Import(path string) (*types.Package, error) {
	if path != binding {
		return c.other.Import(path)
	}
	if c.fdb == nil {
		// Nothing that is built without the tag needs the module, so it may not
		// be on the machine yet.
		out, err := exec.Command("go", "mod", "download", "-json", "github.com/apple/foundationdb/bindings/go").Output()
		if err != nil {
			return nil, fmt.Errorf("get the binding's source: %w: %s", err, out)
		}
		var module struct{ Dir string }
		if err := json.Unmarshal(out, &module); err != nil {
			return nil, fmt.Errorf("get the binding's source: %w: %s", err, out)
		}
		c.fdb = check(c.t, c.fset, filepath.Join(module.Dir, "src", "fdb"), binding, c)
	}
	return c.fdb, nil
}

// check type-checks the package in dir as it is built with the tag fdb.
func check(t *testing.T, fset *token.FileSet, dir, path string, imp types.Importer) *types.Package {
	t.Helper()
	ctx := build.Default
	ctx.CgoEnabled = true
	ctx.BuildTags = []string{"fdb"}
	pkg, err := ctx.ImportDir(dir, 0)
	if err != nil {
		t.Fatalf("list %s: %v", path, err)
	}
	var files []*ast.File
	for _, name := range append(pkg.GoFiles, pkg.CgoFiles...) {
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	conf := types.Config{FakeImportC: true, Importer: imp, Error: func(err error) { t.Errorf("type check: %v", err) }}
	p, _ := conf.Check(path, fset, files, nil)
	return p
}

// The adapter is type-checked in every test run, so that it cannot rot where
// FoundationDB is absent.
func TestTypeChecksWithoutTheLibrary(t *testing.T) {
	fset := token.NewFileSet()
	imp := &cgoImporter{t: t, fset: fset, other: importer.ForCompiler(fset, "source", nil)}
	p := check(t, fset, ".", "github.com/coffer-ledger/coffer/ledger/kv/fdbkv", imp)
	for _, name := range []string{"Open", "Check", "Store"} {
		if p == nil || p.Scope().Lookup(name) == nil {
			t.Errorf("the engine built with -tags fdb has no %s", name)
		}
	}
	if p.Scope().Lookup("tx") == nil {
		t.Error("the check did not see the files behind the tag")
	}
}
