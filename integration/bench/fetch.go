package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// fetchSize is the content of the archive that fetch measures, in bytes.
const (
	fetchSize  = 200 << 20
	fetchFiles = 200
	fetchTurns = 3
)

// fetch measures the process daemon with an archive: from the request to the
// directory in place, against curl and tar in a pipe, in turn; and the most
// memory that the daemon and the process that unpacks had.
func (b *bench) fetch(ctx context.Context) ([]result, error) {
	for _, program := range []string{"curl", "tar", "gzip"} {
		if _, err := exec.LookPath(program); err != nil {
			return []result{{Name: "archive of 200 MiB", Note: "not measured: " + program + " is missing"}}, nil
		}
	}
	dir := filepath.Join(b.dir, "fetch")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	small, large := filepath.Join(dir, "small.tar.gz"), filepath.Join(dir, "large.tar.gz")
	if err := makeArchive(small, 1); err != nil {
		return nil, err
	}
	if err := makeArchive(large, fetchFiles); err != nil {
		return nil, err
	}
	server, address, err := serveFiles(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	c := client.New(b.socket())
	defer c.Close()
	// What the first task of a daemon brings with it is not the archive's.
	if _, _, err := b.fetchOnce(ctx, c, "warm", address+"/small.tar.gz?warm"); err != nil {
		return nil, err
	}
	before, err := peakMemory(b.daemon.Process.Pid)
	if err != nil {
		return nil, err
	}
	var took, floors []time.Duration
	var child int64
	for i := range fetchTurns {
		floor, err := curlTar(ctx, filepath.Join(dir, "curl"), address+"/large.tar.gz")
		if err != nil {
			return nil, err
		}
		t, peak, err := b.fetchOnce(ctx, c, strconv.Itoa(i), fmt.Sprintf("%s/large.tar.gz?%d", address, i))
		if err != nil {
			return nil, err
		}
		took, floors, child = append(took, t), append(floors, floor), max(child, peak)
	}
	after, err := peakMemory(b.daemon.Process.Pid)
	if err != nil {
		return nil, err
	}
	const aim, flat = 2.0, 16.0
	l := line("archive of 200 MiB fetched and unpacked p50", took, floors, 0.5)
	grown := float64(after-before) / (1 << 20)
	met, metFlat := l.Ratio <= aim, grown <= flat
	l.Aim, l.Met = fmt.Sprintf("%g times the floor", aim), &met
	l.Note = fmt.Sprintf("%.0f MiB/s; all of it is downloaded before it is unpacked; floor: curl | tar xz, same server, in turn", fetchSize/(1<<20)/percentile(took, 0.5).Seconds())
	return []result{
		l,
		{Name: "daemon, peak memory more than before", Value: grown, Unit: "MiB", Aim: fmt.Sprintf("%g MiB", flat), Met: &metFlat, Note: "VmHWM over the archives above"},
		{Name: "process that unpacks, peak memory", Value: float64(child) / (1 << 20), Unit: "MiB", Note: "VmHWM as seen every few milliseconds"},
	}, nil
}

// fetchOnce lets the daemon prepare a task with the archive, and removes it. It
// returns the time and the peak memory of the process that unpacked.
func (b *bench) fetchOnce(ctx context.Context, c *client.Client, name, address string) (time.Duration, int64, error) {
	work := filepath.Join(b.dir, "w/work_dir", "fetch-"+name)
	spec := protocol.Spec{
		ID: "fetch-" + name, Owner: "bench", Name: "fetch", StartCmd: "true", WorkPath: work, Sandbox: filepath.Join(b.dir, "s", "fetch-"+name),
		URIs: []protocol.URI{{Value: address, OutputDir: work}},
	}
	wctx, cancel := context.WithCancel(ctx)
	peaks := make(chan int64, 1)
	go func() { peaks <- watchUnpacker(wctx, b.daemon.Process.Pid) }()
	began := time.Now()
	st, err := c.Create(ctx, &spec)
	for err == nil && st.State == protocol.StatePreparing {
		// An unpacked archive is worth a look every few milliseconds.
		time.Sleep(2 * time.Millisecond)
		st, err = c.Status(ctx, spec.ID)
	}
	took := time.Since(began)
	cancel()
	peak := <-peaks
	if err != nil {
		return 0, 0, err
	}
	if st.State != protocol.StateReady {
		return 0, 0, errors.New(st.Failure)
	}
	return took, peak, errors.Join(c.Delete(ctx, spec.ID), os.RemoveAll(work))
}

// watchUnpacker returns the most memory that a child with the argument unpack had.
func watchUnpacker(ctx context.Context, daemon int) (most int64) {
	children := fmt.Sprintf("/proc/%d/task/*/children", daemon)
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		// Threads and processes may end while they are looked at.
		lists, _ := filepath.Glob(children)
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			for field := range strings.FieldsSeq(string(text)) {
				cmdline, _ := os.ReadFile("/proc/" + field + "/cmdline")
				pid, err := strconv.Atoi(field)
				if err != nil || !strings.HasSuffix(string(cmdline), "\x00unpack\x00") {
					continue
				}
				if n, err := peakMemory(pid); err == nil {
					most = max(most, n)
				}
			}
		}
	}
	return most
}

// peakMemory is VmHWM of a process, in bytes.
func peakMemory(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kb int64
	if _, err := fmt.Sscanf(rest, "%d kB", &kb); err != nil {
		return 0, fmt.Errorf("status of %d: %w", pid, err)
	}
	return kb << 10, nil
}

// curlTar is the floor.
func curlTar(ctx context.Context, dir, address string) (time.Duration, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", `curl -sS "$0" | tar -xz -C "$1"`, address, dir).CombinedOutput()
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("curl | tar: %w: %s", err, out)
	}
	return took, nil
}

// makeArchive writes files of a MiB each, half of which does not shrink.
func makeArchive(path string, files int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	random := rand.NewChaCha8([32]byte{1})
	piece := make([]byte, fetchSize/fetchFiles)
	for i := range files {
		if _, err := io.ReadFull(random, piece[:len(piece)/2]); err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("dir%d/file%d", i%10, i), Mode: 0o644, Size: int64(len(piece)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), z.Close(), f.Sync())
}

func serveFiles(ctx context.Context, dir string) (*http.Server, string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	s := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: 10 * time.Second}
	go s.Serve(l) //nolint:errcheck // it ends with Close
	return s, "http://" + l.Addr().String(), nil
}
