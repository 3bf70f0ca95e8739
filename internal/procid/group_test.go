package procid

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSignalGroupReachesChildren of a leader that lives, and of one that was collected; with what this
// kernel has, and as kernels before 6.9 need it.
func TestSignalGroupReachesChildren(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]func(*Process, syscall.Signal) error{
		"this kernel": (*Process).SignalGroup,
		"before 6.9": func(p *Process, sig syscall.Signal) error {
			return p.control(func(fd int) error { return p.signalMembers(fd, sig) })
		},
	} {
		for end, script := range map[string]string{"alive": "sleep 600 & echo $!; wait", "collected": "sleep 600 >/dev/null & echo $!"} {
			t.Run(name+"/"+end, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command("sh", "-c", "read go; "+script)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				collected := false
				t.Cleanup(func() {
					if !collected {
						_ = cmd.Process.Kill()
						_ = cmd.Wait()
					}
				})
				p, err := OpenPid(cmd.Process.Pid)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				if _, err := in.Write([]byte("\n")); err != nil {
					t.Fatal(err)
				}
				line := make([]byte, 32)
				n, err := out.Read(line)
				if err != nil {
					t.Fatal(err)
				}
				child, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
				if err != nil {
					t.Fatal(err)
				}
				its, err := OpenPid(child)
				if err != nil {
					t.Fatal(err)
				}
				defer its.Close()
				if end == "collected" {
					if err := cmd.Wait(); err != nil {
						t.Fatal(err)
					}
					collected = true
				}
				if err := signal(p, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				limit, stop := context.WithTimeout(t.Context(), 30*time.Second)
				defer stop()
				if err := its.Wait(limit); err != nil {
					_ = its.Signal(syscall.SIGKILL)
					t.Errorf("the child goes on: %v", err)
				}
				if !collected {
					_ = cmd.Wait()
					collected = true
				}
				// A zombie that nobody has collected yet is still of the group.
				for until := time.Now().Add(30 * time.Second); !errors.Is(signal(p, syscall.SIGTERM), ErrGone); time.Sleep(time.Millisecond) {
					if time.Now().After(until) {
						t.Fatal("a group that has ended is not gone")
					}
				}
			})
		}
	}
}
