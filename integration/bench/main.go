// Command bench measures what Tandem adds to the floor that the machine sets:
// starting, losing and ending processes and containers, the memory of an executor, the size of the
// binaries, and how fast, how large and how quiet the embedded Mesos is. Floors are taken in the same run, in turn with what is measured, so that
// a busy machine slows both. It prints a table and writes the same as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// result is one line of the table.
type result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Floor is what the machine needs for the bare act, 0 when there is no such thing.
	Floor float64 `json:"floor,omitempty"`
	// Ratio is Value over Floor.
	Ratio float64 `json:"ratio,omitempty"`
	// Aim is the limit in words; empty when there is none.
	Aim string `json:"aim,omitempty"`
	Met *bool  `json:"met,omitempty"`
	// Note says more, for example why nothing was measured.
	Note string `json:"note,omitempty"`
}

// options are what every measurement is given.
type options struct {
	// bin is the directory of the built binaries, self is this program and dir
	// a directory for files that goes with the run.
	bin, self, dir string
	rounds         int
}

// benches are all measurements, by the name that -run takes.
var benches = []struct {
	name    string
	measure func(context.Context, options) ([]result, error)
}{
	{"process", withDaemon((*bench).processes)},
	{"processes", manyProcesses},
	{"exit", withDaemon((*bench).exits)},
	{"taskgroup", withDaemon((*bench).groups)},
	{"container", withDaemon((*bench).containers)},
	{"fetch", withDaemon((*bench).fetch)},
	{"sizes", sizes},
	{"tasks", tasks},
	{"agents", agents},
	{"idle", idle},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == noopArgument {
		os.Exit(runNoop())
	}
	if len(os.Args) > 1 && os.Args[1] == idleArgument {
		runIdle()
	}
	bin := flag.String("bin", "bin", "directory of the built binaries")
	out := flag.String("out", filepath.Join("build", "bench.json"), "file for the results")
	rounds := flag.Int("n", 40, "rounds of each latency")
	limit := flag.Duration("limit", 10*time.Minute, "time limit of the whole run")
	var names []string
	for _, b := range benches {
		names = append(names, b.name)
	}
	only := flag.String("run", "", "regular expression that names what to measure: "+strings.Join(names, ", "))
	flag.Parse()
	if err := run(*bin, *out, *only, *rounds, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(bin, out, only string, rounds int, limit time.Duration) error {
	// A reader of the table that goes away, such as head(1), must not leave the daemon behind.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run %q: %w", only, err)
	}
	o := options{rounds: rounds}
	if o.bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.bin, "tandem-executor")); err != nil {
		return fmt.Errorf("binaries: %w; build them first (make build)", err)
	}
	if o.self, err = os.Executable(); err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp("/tmp", "tdmb"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	// Pages of a binary that was just written count as dirty until they are on disk.
	syscall.Sync()
	var results []result
	for _, b := range benches {
		if !wanted.MatchString(b.name) {
			continue
		}
		r, err := b.measure(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		results = append(results, r...)
	}
	if len(results) == 0 {
		return fmt.Errorf("-run %q names nothing to measure", only)
	}
	if err := write(out, results); err != nil {
		return err
	}
	show(results)
	return nil
}

// withDaemon gives a measurement an agent and a process daemon of its own.
func withDaemon(measure func(*bench, context.Context) ([]result, error)) func(context.Context, options) ([]result, error) {
	return func(ctx context.Context, o options) ([]result, error) {
		b, err := newBench(ctx, o)
		if err != nil {
			return nil, err
		}
		defer b.close()
		return measure(b, ctx)
	}
}

func write(path string, results []result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func show(results []result) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tVALUE\tFLOOR\tRATIO\tAIM\tMET\tNOTE")
	for _, r := range results {
		floor, ratio, met := "-", "-", "-"
		if r.Floor > 0 {
			floor, ratio = fmt.Sprintf("%.2f %s", r.Floor, r.Unit), fmt.Sprintf("%.2f", r.Ratio)
		}
		if r.Met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*r.Met]
		}
		aim := r.Aim
		if aim == "" {
			aim = "-"
		}
		fmt.Fprintf(w, "%s\t%.2f %s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, floor, ratio, aim, met, r.Note)
	}
	w.Flush()
}

// percentile returns the value below which p of all lie; p is 0 to 1.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// median is the middle one of some figures.
func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

func minimum(values []float64) float64 { return slices.Min(values) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// line makes the line of one percentile of a latency.
func line(name string, values, floors []time.Duration, p float64) result {
	v, f := percentile(values, p), percentile(floors, p)
	return result{Name: name, Value: milliseconds(v), Unit: "ms", Floor: milliseconds(f), Ratio: float64(v) / float64(f)}
}

// latency makes the lines for a latency: median with its aim, and the 99th percentile.
func latency(name string, values, floors []time.Duration, added time.Duration) []result {
	median, tail := line(name+" p50", values, floors, 0.5), line(name+" p99", values, floors, 0.99)
	met := percentile(values, 0.5)-percentile(floors, 0.5) <= added
	median.Aim, median.Met = fmt.Sprintf("floor + %g ms", milliseconds(added)), &met
	median.Note = fmt.Sprintf("%d rounds, least %.2f ms", len(values), milliseconds(percentile(values, 0)))
	return []result{median, tail}
}

// sizes are those of the binaries.
func sizes(_ context.Context, o options) ([]result, error) {
	entries, err := os.ReadDir(o.bin)
	if err != nil {
		return nil, err
	}
	var list []result
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() && strings.HasPrefix(e.Name(), "tandem") {
			list = append(list, result{Name: "size of " + e.Name(), Value: float64(info.Size()) / (1 << 20), Unit: "MiB"})
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no binaries")
	}
	return list, nil
}
