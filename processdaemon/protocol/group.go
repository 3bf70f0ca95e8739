package protocol

import (
	"crypto/sha256"
	"encoding/hex"
)

// GroupName is what a daemon calls a task's control group, and its record, by the
// task's id. So whoever knows a process of the task can tell that a group is the task's.
func GroupName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}
