package unixhttp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerGroups returns the supplementary groups of the peer (SO_PEERGROUPS,
// Linux 4.13), or nil where they cannot be known.
func peerGroups(fd int) []uint32 {
	const room = 65536 / 4
	for n := 64; n <= room*2; n *= 16 {
		groups := make([]uint32, n)
		size := uint32(n * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno == unix.ERANGE {
			continue
		}
		if errno != 0 {
			return nil
		}
		return groups[:size/4]
	}
	return nil
}
