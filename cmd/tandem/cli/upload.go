package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
)

func (a *app) uploadCommand() *cobra.Command {
	var to recipients
	var mode, user string
	cmd := &cobra.Command{
		Use:   "upload (TASKGROUP | KIND/NAME) FILE PATH",
		Short: "Put a file into running tasks",
		Long: `Puts FILE, of at most 1 MiB, into a running task, under the name PATH: of a taskgroup, or of every
taskgroup of a workload. A taskgroup with several tasks needs --task. FILE is - for the standard
input. PATH is absolute in a container; for a process it is in its workPath, relative to that or
absolute. The directory must exist. What has the name is replaced in one step, a symbolic link too;
a file that is replaced lends its owner and mode, a new one is the task's user's, with mode 0644.

The file lasts as long as the container, or the process's directory. To keep it, change the artifact
and apply it. The agent's operator may forbid uploads (messages in /etc/tandem/executor.yaml).`,
		Example: `  tandem upload web-0 nginx.conf /etc/nginx/nginx.conf -n test
  tandem upload process/cache - conf/cache.conf -n test --mode 0640 -o json < cache.conf`,
		Args: exactArgs("TASKGROUP", "FILE", "PATH"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return a.completeLogs(cmd, args, toComplete)
			case 1:
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f := api.UploadFile{Path: args[2], User: user}
			if mode != "" {
				bits, err := strconv.ParseUint(mode, 8, 32)
				if err != nil || bits == 0 || bits > 0o777 {
					return exit.Errorf(exit.Usage, "--mode %q is no permissions; write them as 0640", mode)
				}
				f.Mode = uint32(bits)
			}
			var err error
			if f.Content, err = a.fileToSend(args[1]); err != nil {
				return err
			}
			return a.message(cmd.Context(), &to, args[0], api.Message{Type: api.MessageUpload, Upload: &f}, func(outcome) string {
				return fmt.Sprintf("%s put in place (%d bytes)", f.Path, len(f.Content))
			})
		},
	}
	cmd.Flags().StringVar(&mode, "mode", "", "permission `bits` in octal, such as 0640")
	cmd.Flags().StringVar(&user, "user", "", "owner: a `name` or number of the container, or an account of the agent for a process")
	to.flags(a, cmd)
	return cmd
}

// fileToSend reads a file that is small enough.
func (a *app) fileToSend(name string) ([]byte, error) {
	in := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		defer f.Close()
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, api.MaxUpload+1))
	switch {
	case err != nil:
		return nil, exit.Errorf(exit.Usage, "read %s: %w", name, err)
	case len(content) > api.MaxUpload:
		return nil, exit.Errorf(exit.Usage, "%s has more than %d bytes, which is as much as is sent; put it into the image, an archive or a volume", name, api.MaxUpload)
	}
	return content, nil
}

func (a *app) reloadCommand() *cobra.Command {
	var to recipients
	cmd := &cobra.Command{
		Use:   "reload (TASKGROUP | KIND/NAME)",
		Short: "Run the reload command of running processes",
		Long: `Runs the reloadCmd of a running process, and waits for its end: of a taskgroup, or of every
taskgroup of a workload. A taskgroup with several tasks needs --task. A process that has none, and a
container, is sent the signal that it reloads on (tandem signal).`,
		Example: `  tandem reload db-0 -n test
  tandem reload process/db -n test --task mongod -o json`,
		Args:              exactArgs("TASKGROUP"),
		ValidArgsFunction: a.completeLogs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.message(cmd.Context(), &to, args[0], api.Message{Type: api.MessageReload}, func(outcome) string { return "reloaded" })
		},
	}
	to.flags(a, cmd)
	return cmd
}

func (a *app) restartProcessCommand() *cobra.Command {
	var to recipients
	cmd := &cobra.Command{
		Use:   "restart-process (TASKGROUP | KIND/NAME)",
		Short: "Restart running processes in their place",
		Long: `Ends a running process as its stop command and its grace period say, and starts it anew on the
same agent, in the same directory and with the files that are there: of a taskgroup, or of every
taskgroup of a workload. A taskgroup with several tasks needs --task. The task goes on meanwhile; if
the new start fails, it fails. To have new tasks, and for containers, use tandem restart.`,
		Example: `  tandem restart-process db-0 -n test
  tandem restart-process process/db -n test --task mongod -o json`,
		Args:              exactArgs("TASKGROUP"),
		ValidArgsFunction: a.completeLogs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.message(cmd.Context(), &to, args[0], api.Message{Type: api.MessageRestart}, func(outcome) string { return "restarted" })
		},
	}
	to.flags(a, cmd)
	return cmd
}

func (a *app) commitCommand() *cobra.Command {
	var to recipients
	cmd := &cobra.Command{
		Use:   "commit TASKGROUP IMAGE",
		Short: "Make an image of a running container",
		Long: `Makes an image of the files of a running container as they are now, on the container's agent. A
taskgroup with several tasks needs --task. Volumes and the files of secrets and configmaps are in no
image, nor are the values of the task's environment. The container goes on meanwhile; what it writes
may be in the image in part. An image that is there is not replaced.

The agent's operator may forbid it (messages in /etc/tandem/executor.yaml), and does so where the
policy says which registries images come from.`,
		Example: `  tandem commit web-0 team/web:before-the-crash -n test
  tandem commit web-0 team/web:debug -n test --task nginx -o json`,
		Args: exactArgs("TASKGROUP", "IMAGE"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeLogs(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			m := api.Message{Type: api.MessageCommit, Commit: &api.CommitImage{Image: args[1]}}
			return a.message(cmd.Context(), &to, args[0], m, func(o outcome) string { return "image " + args[1] + " made (" + o.ImageID + ")" })
		},
	}
	to.flags(a, cmd)
	return cmd
}
