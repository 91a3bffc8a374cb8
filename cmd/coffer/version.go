package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker in released builds.
var version = ""

// buildVersion is the version of this binary: what the linker set, else what
// the build knows.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "devel" && len(s.Value) >= 12 {
			v += "+" + s.Value[:12]
		}
	}
	return v
}

type versionCmd struct{}

// Help is the long help.
func (versionCmd) Help() string { return "Example:\n  coffer version --json" }

// Run prints the version.
func (versionCmd) Run(c *cli) error {
	if c.JSON {
		return c.printJSON(map[string]string{"version": buildVersion(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
	}
	_, err := fmt.Fprintf(c.stdout, "coffer %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
