// Command bench measures what Tandem adds to the floor that the machine sets:
// starting a process or a container, the memory of an executor, the size of the
// binaries. Floors are taken in the same run, in turn with what is measured, so that
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

func main() {
	bin := flag.String("bin", "bin", "directory of the built binaries")
	out := flag.String("out", filepath.Join("build", "bench.json"), "file for the results")
	rounds := flag.Int("n", 40, "rounds of each latency")
	limit := flag.Duration("limit", 10*time.Minute, "time limit of the whole run")
	flag.Parse()
	if err := run(*bin, *out, *rounds, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(bin, out string, rounds int, limit time.Duration) error {
	// A reader of the table that goes away, such as head(1), must not leave the daemon behind.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(bin, "tandem-executor")); err != nil {
		return fmt.Errorf("binaries: %w; build them first (make build)", err)
	}
	// Pages of a binary that was just written count as dirty until they are on disk.
	syscall.Sync()
	b, err := newBench(ctx, bin, rounds)
	if err != nil {
		return err
	}
	defer b.close()
	var results []result
	for _, measure := range []func(context.Context) ([]result, error){b.processes, b.containers, b.sizes} {
		r, err := measure(ctx)
		if err != nil {
			return err
		}
		results = append(results, r...)
	}
	if err := write(out, results); err != nil {
		return err
	}
	show(results)
	return nil
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

// latency makes the lines for a latency: median with its aim, and the 99th percentile.
func latency(name string, values, floors []time.Duration, added time.Duration) []result {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	line := func(p float64, label string) result {
		v, f := percentile(values, p), percentile(floors, p)
		return result{Name: name + " " + label, Value: ms(v), Unit: "ms", Floor: ms(f), Ratio: float64(v) / float64(f)}
	}
	median, tail := line(0.5, "p50"), line(0.99, "p99")
	met := percentile(values, 0.5)-percentile(floors, 0.5) <= added
	median.Aim, median.Met = fmt.Sprintf("floor + %g ms", ms(added)), &met
	median.Note = fmt.Sprintf("%d rounds, least %.2f ms", len(values), ms(percentile(values, 0)))
	return []result{median, tail}
}

// sizes are those of the binaries.
func (b *bench) sizes(context.Context) ([]result, error) {
	entries, err := os.ReadDir(b.bin)
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
