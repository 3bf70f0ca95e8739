// Package version says which build of Tandem this is, for the version commands
// and for what the binaries tell each other (User-Agent, /state, start-up log).
//
// The values come from the linker (see the Makefile); a plain `go build` falls
// back to what the toolchain recorded. The package never reads a file or runs
// git: a binary must know itself anywhere.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Set by the linker with -X tandem/internal/version.Version=... and so on.
// Date is the commit's date, RFC 3339, so that equal sources give equal bytes.
var (
	Version string
	Commit  string
	Date    string
)

// unknown stands for a value that neither the linker nor the toolchain recorded.
const unknown = "unknown"

func init() { fill(debug.ReadBuildInfo) }

// fill completes what the linker left open from the toolchain's record.
func fill(read func() (*debug.BuildInfo, bool)) {
	info, ok := read()
	if ok {
		modified := false
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				setDefault(&Commit, s.Value)
			case "vcs.time":
				setDefault(&Date, s.Value)
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
		if v := info.Main.Version; Version == "" && v != "" && v != "(devel)" {
			Version = v
		}
		if Version == "" && len(Commit) >= 12 && Commit != unknown {
			Version = "0.0.0-dev+" + Commit[:12]
			if modified {
				Version += ".dirty"
			}
		}
	}
	setDefault(&Version, "0.0.0-dev")
	setDefault(&Commit, unknown)
	setDefault(&Date, unknown)
}

func setDefault(to *string, value string) {
	if *to == "" {
		*to = value
	}
}

// Info is everything that is known about a build.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	// Date is the commit's date (RFC 3339) or "unknown".
	Date string `json:"date"`
	// Go is the toolchain's version, Platform is GOOS/GOARCH.
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Get returns what is known about this build.
func Get() Info {
	return Info{
		Version:  Version,
		Commit:   Commit,
		Date:     Date,
		Go:       strings.TrimPrefix(runtime.Version(), "go"),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// String is one line for people: version (commit, date), toolchain and platform.
func String() string {
	i := Get()
	commit := i.Commit
	if len(commit) > 12 {
		commit = commit[:12]
	}
	return fmt.Sprintf("%s (commit %s, %s) go%s %s", i.Version, commit, i.Date, i.Go, i.Platform)
}

// UserAgent is the product token for HTTP requests, such as "tandem-executor/1.2.0".
func UserAgent(product string) string { return product + "/" + Version }
