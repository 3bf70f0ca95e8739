package process

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkFloor is fork, exec and wait of a sleep, the least that a start can cost.
func BenchmarkFloor(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("sleep", "0").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart is what a process task costs from the intent to RUNNING:
// prepare, record, create, start, through the daemon's socket.
func BenchmarkStart(b *testing.B) {
	h := newHost(b)
	r := h.runtime("group")
	i := 0
	var took []time.Duration
	for b.Loop() {
		i++
		task := h.task(r, strconv.Itoa(i), "sleep 60")
		began := time.Now()
		launch(b, r, task)
		took = append(took, time.Since(began))
		b.StopTimer()
		if err := r.Stop(context.Background(), task.ID, 0); err != nil {
			b.Fatal(err)
		}
		if err := r.Remove(context.Background(), task.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
}

// BenchmarkStop is SIGTERM to "nothing left", of a process that obeys.
func BenchmarkStop(b *testing.B) {
	h := newHost(b)
	r := h.runtime("group")
	i := 0
	for b.Loop() {
		b.StopTimer()
		i++
		task := h.task(r, strconv.Itoa(i), "sleep 60")
		launch(b, r, task)
		b.StartTimer()
		if err := r.Stop(context.Background(), task.ID, 10*time.Second); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := r.Remove(context.Background(), task.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
