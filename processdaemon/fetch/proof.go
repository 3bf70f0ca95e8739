package fetch

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
)

// proof remembers a password with which a server gave content, so that the cache gives it
// to nobody who has another one. It does not tell the password: it is derived with a
// salt, slowly.
type proof struct {
	Salt []byte `json:"salt"`
	Sum  []byte `json:"sum"`
}

// iterations take some milliseconds, once for each fetch with a password.
const iterations = 20_000

func derive(password string, salt []byte) []byte {
	sum, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return nil // lengths alone can be wrong, and these are not
	}
	return sum
}

// newProof is nil for no password.
func newProof(password string) *proof {
	if password == "" {
		return nil
	}
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // it never fails
	return &proof{salt, derive(password, salt)}
}

// holds tells whether this is the password of the proof.
func (p *proof) holds(password string) bool {
	if p == nil || password == "" {
		return p == nil && password == ""
	}
	sum := derive(password, p.Salt)
	return len(sum) > 0 && subtle.ConstantTimeCompare(sum, p.Sum) == 1
}
