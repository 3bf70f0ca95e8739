package wire

import (
	"crypto/rand"
	"encoding/hex"
)

// NewUUID returns a random UUID (RFC 9562, version 4) in text form, for
// stream, master and container ids.
func NewUUID() string {
	b := UUIDBytes()
	t := hex.EncodeToString(b)
	return t[:8] + "-" + t[8:12] + "-" + t[12:16] + "-" + t[16:20] + "-" + t[20:]
}

// UUIDBytes returns a random UUID as the 16 bytes that status updates carry.
func UUIDBytes() []byte {
	b := make([]byte, 16)
	// crypto/rand.Read never fails (it ends the program instead).
	_, _ = rand.Read(b)
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return b
}
