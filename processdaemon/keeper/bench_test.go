package keeper

import (
	"strconv"
	"syscall"
	"testing"
)

// BenchmarkFloor is fork, exec and wait in this process.
func BenchmarkFloor(b *testing.B) {
	for b.Loop() {
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkSpawn is a start through the keeper: request, fork, exec, record, answer.
func BenchmarkSpawn(b *testing.B) {
	r := newRoom(b, "")
	s := r.spec("a", "")
	s.Path, s.Argv = "/bin/true", []string{"true"}
	n := 0
	for b.Loop() {
		n++
		s.Key = "a." + strconv.Itoa(n)
		e, _, err := r.c.Spawn(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		r.ended(e)
		b.StartTimer()
	}
}
