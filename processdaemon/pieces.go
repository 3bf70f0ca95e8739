package processdaemon

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A piece of output that was cut off a file has the file's name with the place of
// its first byte in all that was ever written, as stdout.000067108864: the names that
// executors give the rotated output of containers, so that whoever follows an output
// through the agent's files reads both alike. What follows the last piece is in the
// file itself.
//
// While a file is cut there is a moment in which its head is in a piece and in the
// file, and one in which it is in the piece alone, and nobody could tell which. In that
// time the piece has the ending "cutting", and who sees it looks again.

// cuttingEnd is the ending of a piece whose head is just being cut off.
const cuttingEnd = ".cutting"

// outputPiece is a part of what was written that is in a file of its own.
type outputPiece struct {
	name        string
	begin, size int64
}

// farthest is a place that no output comes to; the task's user may make files, too.
const farthest = 1 << 60

func pieceName(name string, begin int64) string { return fmt.Sprintf("%s.%012d", name, begin) }

// piecesOf returns the pieces of an output, the oldest first.
func piecesOf(root *os.Root, name string) ([]outputPiece, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var out []outputPiece
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), name+".")
		begin, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || begin > farthest || e.Name() != pieceName(name, begin) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it has just gone
		}
		out = append(out, outputPiece{e.Name(), begin, info.Size()})
	}
	slices.SortFunc(out, func(a, b outputPiece) int { return cmp.Compare(a.begin, b.begin) })
	return out, nil
}
