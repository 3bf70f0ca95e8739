package pause

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestProgramIsWellFormed(t *testing.T) {
	t.Parallel()
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		b, err := Program(arch)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(arch, err)
		}
		p := f.Progs[0]
		if f.Machine != machine || f.Type != elf.ET_EXEC || len(f.Progs) != 1 || p.Filesz != uint64(len(b)) || p.Flags != elf.PF_R|elf.PF_X || f.Entry != p.Vaddr+headers {
			t.Errorf("%s: %+v %+v", arch, f.FileHeader, p)
		}
		// Where the instruction that loads the address of sigIgnore points to.
		at := map[string]int{"amd64": 17 + 19, "arm64": 8 + 13*4}[arch]
		if !bytes.Equal(b[headers+at:], sigIgnore) {
			t.Errorf("%s: the address of sigIgnore is wrong: % x", arch, b[headers+at:])
		}
	}
	if _, err := Program("sparc"); err == nil {
		t.Error("a program for an unknown architecture")
	}
}

// TestProgramSleeps: it ignores SIGCHLD, as the kernel sees it, and waits.
func TestProgramSleeps(t *testing.T) {
	t.Parallel()
	b, err := Program(runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(file, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file)
	for end := time.Now().Add(30 * time.Second); ; {
		// Another test's child may hold the file open for writing for a moment.
		if err = cmd.Start(); err == nil || time.Now().After(end) {
			break
		}
		time.Sleep(10 * time.Millisecond)
		cmd = exec.Command(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	const sigchld = 1 << (17 - 1)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		status, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
		_, rest, _ := strings.Cut(string(status), "SigIgn:\t")
		mask, _ := strconv.ParseUint(strings.SplitN(rest, "\n", 2)[0], 16, 64)
		if mask&sigchld != 0 && strings.Contains(string(status), "State:\tS") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it never came to sleep:\n%s", status)
		}
	}
}
