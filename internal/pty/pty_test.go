package pty

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program on the terminal sees one, of the size that was set, and what it writes
// comes out at the master; the end of the last one there is an end of the output.
func TestProgramOnATerminal(t *testing.T) {
	t.Parallel()
	master, terminal, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := SetSize(master, 91, 33); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "test -t 0 && stty size; read line; echo got $line")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	_ = master.SetReadDeadline(time.Now().Add(time.Minute))
	out := bufio.NewReader(master)
	expect := func(want string) {
		t.Helper()
		for {
			line, err := out.ReadString('\n')
			if strings.TrimSpace(line) == want {
				return
			}
			if err != nil {
				t.Fatalf("%q, and no %q: %v", line, want, err)
			}
		}
	}
	expect("33 91")
	if _, err := master.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	expect("got hello")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := out.ReadString('\n'); err == nil {
		t.Error("output of nobody")
	}
}

func TestSetSizeOfAFile(t *testing.T) {
	t.Parallel()
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if SetSize(f, 1, 1) == nil {
		t.Error("a file has a size in characters")
	}
}
