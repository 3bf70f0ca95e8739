package processdaemon

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// TestRealServer runs a server of the distribution as an artifact would: from
// an archive, into the background, with a pid file and a stop command.
func TestRealServer(t *testing.T) {
	t.Parallel()
	server, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	d := newDaemon(t)
	s := spec(d, "redis", "./start.sh --appendonly no")
	archive := filepath.Join(d.opts.Workspace, "redis-v1.tar.gz")
	makeTarGz(t, archive, map[string]string{
		"redis/start.sh": "#!/bin/sh\nexec " + server + ` --daemonize yes --save "" --dir "$PWD" --pidfile "$pid_file" --bind 127.0.0.1 --port "$PORT0" "$@"` + "\n",
		"redis/stop.sh":  "#!/bin/sh\nkill $(cat \"$pid_file\")\n",
	})
	s.URIs = []protocol.URI{{Value: "file://" + archive, OutputDir: s.WorkPath}}
	s.WorkPath += "/redis"
	s.PidFile, s.StopCmd, s.StartGrace = s.WorkPath+"/redis.pid", "./stop.sh", time.Second
	s.Env = []string{"pid_file=" + s.PidFile, fmt.Sprintf("PORT0=%d", addr.Port)}
	run(t, d, s)
	awaitState(t, d, "redis", running)
	var c net.Conn
	eventually(t, "it accepts connections", func() bool { c, err = net.Dial("tcp", addr.String()); return err == nil })
	defer c.Close()
	fmt.Fprint(c, "PING\r\n")
	buf := make([]byte, 7)
	if _, err := c.Read(buf); err != nil || string(buf) != "+PONG\r\n" {
		t.Errorf("%q %v", buf, err)
	}
	begin := time.Now()
	if _, err := d.Stop("redis", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, d, "redis", ended)
	if st.Exit == nil || st.Exit.Signal != 0 || time.Since(begin) > 5*time.Second {
		t.Errorf("%+v after %v", st.Exit, time.Since(begin))
	}
}
