package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// newLog writes the log to w, as systemd's journal wants it when w is the journal.
func newLog(w io.Writer, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if isJournal(w) {
		w = &journal{w}
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{} // the journal has its own
			}
			return a
		}
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// isJournal tells whether w is the stream to the journal that JOURNAL_STREAM
// names by device and inode, see systemd.exec(5).
func isJournal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// journal puts the priority that sd-daemon(3) has before each line, in the place of
// the level's name.
type journal struct{ w io.Writer }

var priorities = []struct{ level, prefix string }{
	{"level=DEBUG ", "<7>"}, {"level=INFO ", "<6>"}, {"level=WARN ", "<4>"}, {"level=ERROR ", "<3>"},
}

// Write takes one whole record, which is what slog's handlers write.
func (j *journal) Write(p []byte) (int, error) {
	for _, x := range priorities {
		if rest, ok := bytes.CutPrefix(p, []byte(x.level)); ok {
			if _, err := j.w.Write(append([]byte(x.prefix), rest...)); err != nil {
				return 0, err
			}
			return len(p), nil
		}
	}
	return j.w.Write(p)
}
