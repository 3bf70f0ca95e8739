// Command tandem-processd is the daemon of an agent that owns its plain
// processes and cleans up after executors that died.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tandem/executor/container"
	"tandem/internal/unixhttp"
	"tandem/internal/version"
	"tandem/processdaemon"
	"tandem/processdaemon/client"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/unpack"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	if keeper.Asked() {
		os.Exit(keeper.Main())
	}
	if unpack.Asked() {
		os.Exit(unpack.Main())
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	dataDir, socket, workspace, group, dockerHost string
	killOnExit                                    bool
	killGrace                                     time.Duration
	logLevel                                      string
	outputMB, outputFiles                         int
}

// usageError marks what the caller of the program got wrong.
type usageError struct{ error }

func run(args []string, stdout, stderr io.Writer) int {
	cmd := command(stdout, stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.Execute()
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "tandem-processd: %v; see tandem-processd --help\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "tandem-processd: %v\n", err)
	return exitFailure
}

func command(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "tandem-processd",
		Short: "Own the plain processes of a Mesos agent",
		Long: `tandem-processd starts, watches and stops the processes of the taskgroups on an agent, and
removes what executors leave behind that die. One runs on every agent, as root.

On SIGTERM or SIGINT it stops serving and leaves the processes running; the next one on the same
data directory takes them up again, as it does after a crash. With --kill-on-exit it stops them first.

Exit codes: 0 ended by a signal, 1 failure, 2 wrong flags.`,
		Example: `  tandem-processd --data-dir /srv/tandem --group mesos
  tandem-processd --data-dir /tmp/t --socket /tmp/t/processd.sock --kill-on-exit`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unexpected argument %q", args[0])}
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		Version: version.String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return serve(ctx, &o, stderr)
		},
	}
	cmd.SetContext(context.Background())
	cmd.SetVersionTemplate("tandem-processd {{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(&cobra.Command{
		Use: "version", Short: "Show the version and exit", Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { fmt.Fprintln(stdout, "tandem-processd", version.String()) },
	})
	cmd.CompletionOptions.DisableDefaultCmd = true
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", env("TANDEM_DATA_DIR", "/var/lib/tandem"), "directory of the records and the journal, shared with tandem-executor (TANDEM_DATA_DIR)")
	f.StringVar(&o.socket, "socket", env("TANDEM_PROCESSD_SOCKET", client.DefaultSocket), "unix socket to serve on, mode 0660 (TANDEM_PROCESSD_SOCKET)")
	f.StringVar(&o.workspace, "workspace", "", "directory of work_dir and run_dir, which ${work_base_dir} and ${run_base_dir} name (default <data-dir>/workspace)")
	f.StringVar(&o.group, "group", "", "group whose members may use the socket, besides root and the daemon's user")
	f.StringVar(&o.dockerHost, "docker-host", env("DOCKER_HOST", ""), "the Docker Engine from which containers of dead executors are removed, as unix:///path (DOCKER_HOST)")
	f.BoolVar(&o.killOnExit, "kill-on-exit", false, "stop all processes before ending")
	f.DurationVar(&o.killGrace, "kill-grace", 3*time.Second, "with --kill-on-exit: time from SIGTERM to SIGKILL")
	f.IntVar(&o.outputMB, "output-max-mb", 64, "MiB at which stdout and stderr of a process are rotated; 0 never rotates")
	f.IntVar(&o.outputFiles, "output-files", 3, "older pieces of stdout and stderr that are kept: stdout.1, stdout.2, ...")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error; the log goes to stderr")
	return cmd
}

func env(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}

func serve(ctx context.Context, o *options, stderr io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return usageError{fmt.Errorf("--log-level %q: want debug, info, warn or error", o.logLevel)}
	}
	if o.outputMB < 0 || o.outputFiles < 0 {
		return usageError{errors.New("--output-max-mb and --output-files: want 0 or more")}
	}
	if err := unixhttp.CheckPath(o.socket); err != nil {
		return usageError{fmt.Errorf("--socket: %w", err)}
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if o.workspace == "" {
		o.workspace = filepath.Join(o.dataDir, "workspace")
	}
	notify, interval := newNotifier(), watchdogInterval()
	// It idles for years beside what it is there for: memory counts more than speed.
	debug.SetGCPercent(40)
	// What the daemon makes for tasks shall not depend on who started it.
	syscall.Umask(0o022)
	d, err := processdaemon.New(processdaemon.Options{
		DataDir: o.dataDir, Workspace: o.workspace, Version: version.String(), Log: log, OwnProgram: true,
		LogSize: int64(o.outputMB) << 20, LogFiles: o.outputFiles,
		Cleaners: map[string]processdaemon.Cleaner{container.Kind: container.NewCleaner(o.dockerHost)},
	})
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := unixhttp.Listen(ctx, o.socket, o.group)
	if err != nil {
		return err
	}
	log.Info("serving", "socket", o.socket)
	if err := notify.tell("READY=1"); err != nil {
		log.Warn("systemd does not know that the daemon is ready", "err", err)
	}
	var watched sync.WaitGroup
	watched.Go(func() { notify.watchdog(ctx, interval, func() { d.List("") }) })
	serveErr := d.Serve(ctx, l)
	watched.Wait()
	if err := notify.tell("STOPPING=1"); err != nil {
		log.Warn("systemd does not know that the daemon stops", "err", err)
	}
	if o.killOnExit {
		log.Info("stopping all processes", "grace", o.killGrace)
		const more = 15 * time.Second
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.killGrace+more)
		defer cancel()
		serveErr = errors.Join(serveErr, d.StopAll(kctx, o.killGrace))
	}
	log.Info("ended", "processes_left_running", !o.killOnExit)
	return serveErr
}
