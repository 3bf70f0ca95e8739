// Package pause makes the program that holds a network namespace open, and the
// image that it runs from. The program is a few machine instructions in an ELF
// file: it tells the kernel to reap its children (SIGCHLD ignored, see
// sigaction(2)) and sleeps for ever. So no binary has to be built, shipped or
// pulled, and a sandbox container costs a few kilobytes. It must never depend on
// anything in its image: there is nothing else in it.
package pause

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"runtime"
)

// Path is where the program is in its image.
const Path = "/pause"

// repository is the name of the image; the tag tells which program is in it.
const repository = "tandem-sandbox"

// Where the file is mapped, and where the code begins: after the headers.
const (
	base    = 0x400000
	headers = 64 + 56
)

// sigIgnore is the kernel's struct sigaction with SIG_IGN for the handler; flags,
// restorer and mask are 0.
var sigIgnore = append([]byte{1}, make([]byte, 31)...)

// amd64: rt_sigaction(SIGCHLD, &sigIgnore, 0, 8), then pause() for ever.
var amd64 = []byte{
	0xb8, 13, 0, 0, 0, // mov eax, 13
	0xbf, 17, 0, 0, 0, // mov edi, 17
	0x48, 0x8d, 0x35, 19, 0, 0, 0, // lea rsi, [rip+19]
	0x31, 0xd2, // xor edx, edx
	0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8
	0x0f, 0x05, // syscall
	0xb8, 34, 0, 0, 0, // mov eax, 34
	0x0f, 0x05, // syscall
	0xeb, 0xf7, // jmp back to mov eax, 34
}

// arm64: the same with an endless ppoll(2) for pause, which it lacks.
var arm64 = []uint32{
	0xd28010c8, // mov x8, 134
	0xd2800220, // mov x0, 17
	0x100001a1, // adr x1, 13 instructions on
	0xd2800002, // mov x2, 0
	0xd2800103, // mov x3, 8
	0xd4000001, // svc 0
	0xd2800928, // mov x8, 73
	0xd2800000, // mov x0, 0
	0xd2800001, // mov x1, 0
	0xd2800002, // mov x2, 0
	0xd2800003, // mov x3, 0
	0xd2800004, // mov x4, 0
	0xd4000001, // svc 0
	0x17fffff9, // b 7 instructions back
	0xd503201f, // nop: what follows is aligned
}

// Program returns the ELF file for an architecture, as GOARCH names it.
func Program(arch string) ([]byte, error) {
	var machine uint16
	var code []byte
	switch arch {
	case "amd64":
		machine, code = 62, amd64
	case "arm64":
		machine = 183
		for _, i := range arm64 {
			code = binary.LittleEndian.AppendUint32(code, i)
		}
	default:
		return nil, fmt.Errorf("sandbox program: there is none for %s; amd64 and arm64 have one", arch)
	}
	size := uint64(headers + len(code) + len(sigIgnore))
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v) // to memory: it cannot fail
		}
	}
	// See elf(5): the header, then one program header that maps the whole file.
	put([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	put(uint16(2), machine, uint32(1), uint64(base+headers), uint64(64), uint64(0), uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0))
	put(uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000))
	put(code, sigIgnore)
	return b.Bytes(), nil
}

// Image returns the name of the image for this machine, with a tag that depends on
// the program alone, and its only layer as a tar archive.
func Image() (name string, layer []byte, err error) {
	program, err := Program(runtime.GOARCH)
	if err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: Path[1:], Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg}); err != nil {
		return "", nil, fmt.Errorf("sandbox image: %w", err)
	}
	if _, err := w.Write(program); err != nil {
		return "", nil, fmt.Errorf("sandbox image: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", nil, fmt.Errorf("sandbox image: %w", err)
	}
	sum := sha256.Sum256(program)
	return repository + ":" + hex.EncodeToString(sum[:8]), b.Bytes(), nil
}
