package netns

import (
	"net/netip"
	"os/exec"
	"strconv"
	"testing"
)

func TestAddrsAreThoseInside(t *testing.T) {
	ns, cmd := inside(t)
	if got, err := Addrs(ns); err != nil || len(got) != 0 {
		t.Errorf("a namespace with loopback only: %v, %v", got, err)
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("no program ip: ", err)
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skip("no program nsenter: ", err)
	}
	for _, args := range [][]string{
		{"link", "add", "br0", "type", "bridge"}, {"link", "set", "br0", "up"},
		{"addr", "add", "192.0.2.7/24", "dev", "br0"}, {"addr", "add", "2001:db8::7/64", "dev", "br0", "nodad"},
	} {
		args = append([]string{"-t", strconv.Itoa(cmd.Process.Pid), "-n", ip}, args...)
		if out, err := exec.Command(nsenter, args...).CombinedOutput(); err != nil {
			t.Skipf("ip %v: %v: %s", args, err, out)
		}
	}
	got, err := Addrs(ns)
	want := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
