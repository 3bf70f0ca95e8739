package health

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"tandem/api"
)

// BenchmarkHundredTasks measures what 100 tasks with a TCP check once a second
// cost, as percentage of a core; the accepting side is a part of it.
func BenchmarkHundredTasks(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	inbox := make(chan Result, 16)
	ctx, cancel := context.WithCancel(b.Context())
	var workers sync.WaitGroup
	m := NewMonitor(Options{Context: ctx, Go: workers.Go, Post: func(r Result) bool {
		select {
		case inbox <- r:
			return true
		case <-ctx.Done():
			return false
		}
	}})
	defer workers.Wait()
	defer cancel()
	const tasks = 100
	for i := range tasks {
		m.Watch(strconv.Itoa(i), []Check{{Type: api.CheckTCP, Port: port, Delay: time.Duration(i) * 10 * time.Millisecond, Interval: time.Second, Timeout: time.Second}},
			Target{Addresses: []netip.Addr{here}})
	}
	var before, after syscall.Rusage
	made, failed := 0, 0
	b.ResetTimer()
	for range b.N {
		begin := time.Now()
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		end := time.NewTimer(5 * time.Second)
		wake := time.NewTimer(0)
	round:
		for {
			if d, ok := m.Next(); ok {
				wake.Reset(d)
			}
			select {
			case <-wake.C:
				m.Run()
			case r := <-inbox:
				made++
				if r.outcome.Verdict != Passed {
					failed++
				}
				m.Take(r)
			case <-end.C:
				break round
			}
		}
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		used := time.Duration(after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano())
		b.ReportMetric(100*used.Seconds()/time.Since(begin).Seconds(), "%core")
	}
	if failed > 0 || made < tasks {
		b.Errorf("%d of %d checks failed", failed, made)
	}
}
