package processdaemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
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

// readOutput reads an output from a place, as rotator.readAt does. No head may be cut off meanwhile.
func readOutput(root *os.Root, name string, from int64, buf []byte, open func(name string) (*os.File, int64, error)) (n int, next int64, err error) {
	pieces, err := piecesOf(root, name)
	if err != nil {
		return 0, from, err
	}
	f, size, err := open(name)
	if err != nil {
		return 0, from, err
	}
	defer f.Close()
	first, begin := int64(0), int64(0)
	for i, p := range pieces {
		if i == 0 {
			first = p.begin
		}
		begin = max(begin, p.begin+p.size)
	}
	if from < 0 {
		from = begin + size + from
	}
	from = max(from, first)
	for _, p := range pieces {
		if from >= p.begin+p.size {
			continue
		}
		from = max(from, p.begin)
		if n, err = readPiece(p, from, buf, open); n > 0 || err != nil {
			return n, from + int64(n), err
		}
	}
	from = max(from, begin)
	n, err = f.ReadAt(buf, from-begin)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, from + int64(n), err
}

// readPiece reads some of a piece. One that has gone, or that the task's user has put
// something else in the place of, has nothing.
func readPiece(p outputPiece, from int64, buf []byte, open func(name string) (*os.File, int64, error)) (int, error) {
	f, _, err := open(p.name)
	if err != nil {
		return 0, nil
	}
	defer f.Close()
	n, err := f.ReadAt(buf[:min(int64(len(buf)), p.begin+p.size-from)], from-p.begin)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
