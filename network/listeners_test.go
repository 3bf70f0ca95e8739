package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/api"
)

func TestCheckFreeNamesTheListener(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.77:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	err = CheckFreePorts("127.0.0.77", []api.TaskPort{{Name: "http", HostPort: port, Protocol: "tcp"}, {Name: "inner", ContainerPort: port, Protocol: "tcp"}})
	var inUse *InUseError
	if !errors.As(err, &inUse) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{`port "http": hostPort ` + strconv.Itoa(port), fmt.Sprintf("(pid %d)", os.Getpid()), "use 0 for a random one"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if err := CheckFree("127.0.0.78", port, "tcp"); err != nil {
		t.Errorf("another loopback address: %v", err)
	}
	if err := CheckFree("127.0.0.77", port, "udp"); err != nil {
		t.Errorf("another protocol: %v", err)
	}
	for _, addr := range []string{"", "0.0.0.0", "192.0.2.1", "::"} {
		if err := CheckFree(addr, port, "tcp"); err == nil {
			t.Errorf("a listener on a loopback address must be in the way of a bind on %q", addr)
		}
	}
	if err := CheckFree("nowhere", port, "tcp"); err == nil {
		t.Error("no error for an address that is none")
	}
}

func TestCheckFreeUDPAndWildcard(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		pc, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Logf("skipped %s: %v", address, err)
			continue
		}
		port := pc.LocalAddr().(*net.UDPAddr).Port
		if err := CheckFree("127.0.0.1", port, "udp"); err == nil {
			t.Errorf("%s: not seen", address)
		}
		pc.Close()
		if err := CheckFree("127.0.0.1", port, "udp"); err != nil {
			t.Errorf("%s: still there after close: %v", address, err)
		}
	}
}

func FuzzParseListeners(f *testing.F) {
	f.Add("  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1 0 100 0 0 10 0\n")
	f.Add("  0: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 99\n")
	f.Add("garbage\n\n: : : 0A\n")
	f.Fuzz(func(t *testing.T, text string) {
		l := &Listeners{by: map[portKey][]Listener{}}
		if err := l.parse(strings.NewReader(text), "tcp", "0A"); err != nil {
			return
		}
		for k, all := range l.by {
			for _, x := range all {
				if !x.Addr.IsValid() || x.Addr.Is4In6() || x.Port != k.port {
					t.Fatalf("%+v", x)
				}
			}
		}
	})
}

func TestParseListenersUnmapsAddresses(t *testing.T) {
	t.Parallel()
	l := &Listeners{by: map[portKey][]Listener{}}
	text := "  0: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 99\n"
	if err := l.parse(strings.NewReader(text), "tcp", "0A"); err != nil {
		t.Fatal(err)
	}
	if _, taken := l.Conflict(netip.MustParseAddr("127.0.0.1"), 80, "tcp"); !taken {
		t.Error("::ffff:127.0.0.1 is 127.0.0.1")
	}
}

// TestProcAndSockDiagAgree: the fallback sees what the fast way sees.
func TestProcAndSockDiagAgree(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.79:0", "[::1]:0", "[::]:0"} {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("skipped %s: %v", address, err)
			continue
		}
		defer ln.Close()
		port := ln.Addr().(*net.TCPAddr).Port
		var seen []Listener
		for _, read := range []func(*Listeners) error{
			func(l *Listeners) error { return l.readProc(procTables) },
			func(l *Listeners) error { return errors.Join(l.dumpTCP(unix.AF_INET), l.dumpTCP(unix.AF_INET6)) },
		} {
			l := &Listeners{proc: "/proc", by: map[portKey][]Listener{}}
			if err := read(l); err != nil {
				t.Fatal(err)
			}
			x, ok := l.Conflict(netip.IPv4Unspecified(), port, "tcp")
			if !ok {
				t.Fatalf("%s not seen", ln.Addr())
			}
			seen = append(seen, x)
		}
		if seen[0] != seen[1] {
			t.Errorf("proc says %+v, sock_diag %+v", seen[0], seen[1])
		}
	}
}

func FuzzTakeDiag(f *testing.F) {
	f.Add([]byte{16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) {
		l := &Listeners{by: map[portKey][]Listener{}}
		_, _ = l.takeDiag(b)
	})
}

func BenchmarkCheckTenPorts(b *testing.B) {
	ports := make([]api.TaskPort, 10)
	for i := range ports {
		ports[i] = api.TaskPort{HostPort: 1 + i, Protocol: "tcp"}
	}
	for b.Loop() {
		if err := CheckFreePorts("", ports); err != nil {
			b.Skip(err)
		}
	}
}
