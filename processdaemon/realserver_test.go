package processdaemon

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// lastPort is the last one that freePort looked at.
var lastPort atomic.Int32

// freePort returns a TCP port of 127.0.0.1 that nobody listens on. It is none of those that the kernel
// gives to who asks for any (ip_local_port_range): another test would be given it before the server
// has it.
func freePort(t testing.TB) int {
	t.Helper()
	const first, most = 20_000, 4_000
	lastPort.CompareAndSwap(0, int32(first+os.Getpid()%most))
	for range most {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lastPort.Add(1)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	t.Fatal("no port is free")
	return 0
}

// server looks for a server of the distribution, which is often in sbin.
func server(t testing.TB, name string) string {
	t.Helper()
	for _, n := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(n); err == nil {
			return path
		}
	}
	t.Skip(name + " is not installed")
	return ""
}

// pageAt is what an HTTP server says; the error when it says nothing.
func pageAt(port int) string {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// get asks an HTTP server until it answers with what is wanted.
func get(t testing.TB, port int, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("port %d answers with %q", port, want), func() bool { return pageAt(port) == want })
}

// withFile creates a task, puts a file in place, and starts it.
func withFile(t testing.TB, d *Daemon, s protocol.Spec, f protocol.File) {
	t.Helper()
	create(t, d, s)
	if err := d.PutFiles(s.ID, []protocol.File{f}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Start(s.ID); err != nil {
		t.Fatal(err)
	}
}

// reloaded runs the reload command of a task and waits until it has ended well.
func reloaded(t testing.TB, d *Daemon, id string) {
	t.Helper()
	if _, err := d.Reload(id); err != nil {
		t.Fatal(err)
	}
	st := await(t, d, id, func(st protocol.Status) bool { return st.Reload != nil && !st.Reload.Running })
	if st.Reload.Failure != "" {
		t.Fatalf("reload: %+v", st.Reload)
	}
}

// endsWell stops a task, which nothing has to be killed of.
func endsWell(t testing.TB, d *Daemon, id string) {
	t.Helper()
	if _, err := d.Stop(id, time.Minute); err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, d, id, ended)
	if st.Exit == nil || !st.Exit.Known || st.Exit.Signal != 0 || st.Exit.Code != 0 {
		t.Errorf("it ended with %+v", st.Exit)
	}
}

// TestRealRedis runs a server of the distribution as an artifact would: from
// an archive, into the background, with a pid file and a stop command.
func TestRealRedis(t *testing.T) {
	t.Parallel()
	redis, port := server(t, "redis-server"), freePort(t)
	d := newDaemon(t)
	s := spec(d, "redis", "./start.sh --appendonly no")
	archive := filepath.Join(d.opts.Workspace, "redis-v1.tar.gz")
	makeTarGz(t, archive, map[string]string{
		"redis/start.sh": "#!/bin/sh\nexec " + redis + ` --daemonize yes --save "" --dir "$PWD" --pidfile "$pid_file" --bind 127.0.0.1 --port "$PORT0" "$@"` + "\n",
		"redis/stop.sh":  "#!/bin/sh\nkill $(cat \"$pid_file\")\n",
	})
	s.URIs = []protocol.URI{{Value: "file://" + archive, OutputDir: s.WorkPath}}
	s.WorkPath += "/redis"
	s.PidFile, s.StopCmd, s.StartGrace = s.WorkPath+"/redis.pid", "./stop.sh", time.Minute
	s.Env = []string{"pid_file=" + s.PidFile, fmt.Sprintf("PORT0=%d", port)}
	run(t, d, s)
	awaitState(t, d, "redis", running)
	var c net.Conn
	var err error
	eventually(t, "it accepts connections", func() bool { c, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); return err == nil })
	defer c.Close()
	fmt.Fprint(c, "PING\r\n")
	buf := make([]byte, 7)
	if _, err := c.Read(buf); err != nil || string(buf) != "+PONG\r\n" {
		t.Errorf("%q %v", buf, err)
	}
	if _, err := d.Stop("redis", 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, d, "redis", ended)
	if st.Exit == nil || st.Exit.Signal != 0 {
		t.Errorf("%+v", st.Exit)
	}
}

// TestRealNginx is a master with workers: it puts itself into the background, changes
// what it serves by its own client, and ends when its last request is answered.
func TestRealNginx(t *testing.T) {
	t.Parallel()
	nginx, port := server(t, "nginx"), freePort(t)
	d := newDaemon(t)
	s := spec(d, "nginx", "mkdir -p tmp logs && ./config.sh first && $nginx -p . -c $PWD/nginx.conf")
	s.User, s.ProcName, s.PidFile, s.StartGrace = "nobody", "nginx", s.WorkPath+"/nginx.pid", time.Minute
	s.LogPath = s.WorkPath + "/logs"
	s.Env = []string{"nginx=" + nginx, fmt.Sprintf("PORT0=%d", port)}
	s.ReloadCmd = "./config.sh second && $nginx -p . -c $PWD/nginx.conf -s reload"
	s.StopCmd = "$nginx -p . -c $PWD/nginx.conf -s quit"
	withFile(t, d, s, protocol.File{Path: "config.sh", Mode: 0o755, Content: []byte(`#!/bin/sh
cat > nginx.conf <<END
pid $PWD/nginx.pid; error_log logs/error.log notice; worker_processes 2;
events {}
http {
	access_log logs/access.log; client_body_temp_path tmp/1; proxy_temp_path tmp/2; fastcgi_temp_path tmp/3; uwsgi_temp_path tmp/4; scgi_temp_path tmp/5;
	server { listen 127.0.0.1:$PORT0; return 200 $1; }
}
END
`)})
	before := awaitState(t, d, "nginx", running)
	get(t, port, "first")
	reloaded(t, d, "nginx")
	get(t, port, "second")
	if now, err := d.Status("nginx"); err != nil || now.State != running || now.Pid != before.Pid {
		t.Errorf("after the reload %+v, %v; was pid %d", now, err, before.Pid)
	}
	files, err := d.LogFiles("nginx")
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); err != nil || !strings.Contains(got, "access.log") || !strings.Contains(got, "error.log") {
		t.Errorf("log files %q, %v", got, err)
	}
	endsWell(t, d, "nginx")
}

// TestRealHaproxy is a master in the foreground that executes its own program anew to
// load its configuration, with the same pid and the listening socket handed on.
func TestRealHaproxy(t *testing.T) {
	t.Parallel()
	haproxy, port := server(t, "haproxy"), freePort(t)
	d := newDaemon(t)
	s := spec(d, "haproxy", "./config.sh first && exec $haproxy -W -f h.cfg")
	s.User, s.ProcName = "nobody", "haproxy"
	s.Env = []string{"haproxy=" + haproxy, fmt.Sprintf("PORT0=%d", port)}
	s.ReloadCmd = `./config.sh second && kill -USR2 "$MAINPID"`
	withFile(t, d, s, protocol.File{Path: "config.sh", Mode: 0o755, Content: []byte(`#!/bin/sh
cat > h.cfg <<END
defaults
	mode http
	timeout connect 1s
	timeout client 2s
	timeout server 2s
frontend front
	bind 127.0.0.1:$PORT0
	http-request return status 200 content-type text/plain string $1
END
`)})
	before := awaitState(t, d, "haproxy", running)
	get(t, port, "first")
	// A master that has only just begun, or has just loaded, may miss the signal.
	eventually(t, "it serves what it was told to load", func() bool {
		reloaded(t, d, "haproxy")
		for end := time.Now().Add(time.Second); pageAt(port) != "second"; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				return false
			}
		}
		return true
	})
	if now, err := d.Status("haproxy"); err != nil || now.State != running || now.Pid != before.Pid {
		t.Errorf("after the reload %+v, %v; was pid %d", now, err, before.Pid)
	}
	if _, err := d.Stop("haproxy", time.Minute); err != nil {
		t.Fatal(err)
	}
	if st := awaitState(t, d, "haproxy", ended); st.Exit == nil || st.Exit.Signal == int(syscall.SIGKILL) {
		t.Errorf("it ended with %+v", st.Exit)
	}
}

// TestRealMemcached puts itself into the background and writes its pid file by itself,
// and knows no command to stop it.
func TestRealMemcached(t *testing.T) {
	t.Parallel()
	memcached, port := server(t, "memcached"), freePort(t)
	d := newDaemon(t)
	s := spec(d, "memcached", "")
	s.User, s.ProcName, s.PidFile, s.StartGrace = "nobody", "memcached", s.WorkPath+"/mc.pid", time.Minute
	s.StartCmd = fmt.Sprintf("%s -d -l 127.0.0.1 -p %d -P %s", memcached, port, s.PidFile)
	run(t, d, s)
	awaitState(t, d, "memcached", running)
	var c net.Conn
	eventually(t, "it accepts connections", func() (ok bool) {
		var err error
		c, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err == nil
	})
	defer c.Close()
	fmt.Fprint(c, "version\r\n")
	buf := make([]byte, 8)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "VERSION " {
		t.Errorf("%q %v", buf, err)
	}
	endsWell(t, d, "memcached")
}
