package processdaemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// TestMainPid: what is run beside the main process knows its pid, also without a pid
// file; the start command has none, before the first start and after a restart.
func TestMainPid(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", `echo "start [$MAINPID]" >> started; exec sleep 60`)
	s.ReloadCmd = `echo "reload [$MAINPID]" >> said`
	s.StopCmd = `echo "stop [$MAINPID]" >> said; kill "$MAINPID"`
	run(t, d, s)
	var want []string
	for i := range 2 {
		st := await(t, d, "a", func(st protocol.Status) bool { return st.State == running && st.Restarts == i })
		reloaded(t, d, "a")
		res, err := d.Exec(t.Context(), "a", protocol.ExecRequest{Argv: []string{"sh", "-c", `echo "$MAINPID"`}}, func() {})
		if err != nil || strings.TrimSpace(res.Output) != strconv.Itoa(st.Pid) {
			t.Errorf("a command beside %d has MAINPID %q, %v", st.Pid, res.Output, err)
		}
		want = append(want, fmt.Sprintf("reload [%d]", st.Pid), fmt.Sprintf("stop [%d]", st.Pid))
		if i == 0 {
			_, err = d.Restart("a", time.Minute)
		} else {
			_, err = d.Stop("a", time.Minute)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	awaitState(t, d, "a", ended)
	if got := strings.Split(strings.TrimSpace(read(t, filepath.Join(s.WorkPath, "said"))), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := read(t, filepath.Join(s.WorkPath, "started")); strings.ReplaceAll(got, "start []\n", "") != "" {
		t.Errorf("the start command has %q", got)
	}
}
