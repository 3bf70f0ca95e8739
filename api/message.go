package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MessageType tells what a framework message asks an executor for.
type MessageType string

// The types of messages. An executor refuses any other.
const (
	// MessageSignal sends a signal to a task's first process.
	MessageSignal MessageType = "signal"
	// MessageResources changes what a running task may use.
	MessageResources MessageType = "resources"
	// MessageExec opens a session in a running task, for a command beside it.
	MessageExec MessageType = "exec"
	// MessageUpload puts a file into a running task.
	MessageUpload MessageType = "upload"
	// MessageReload runs the reload command of a process.
	MessageReload MessageType = "reload"
	// MessageRestart ends a process and starts it anew in its directories, without
	// another task.
	MessageRestart MessageType = "restart"
	// MessageCommit makes an image of a running container, on its agent.
	MessageCommit MessageType = "commit"
	// MessageLogs lists the files that a process's logPath names, or opens a session
	// that brings the text of one of them.
	MessageLogs MessageType = "logs"
)

var messageTypes = []string{
	string(MessageSignal), string(MessageResources), string(MessageExec), string(MessageUpload), string(MessageReload), string(MessageRestart), string(MessageCommit), string(MessageLogs),
}

// MessageTypes returns all types of messages.
func MessageTypes() []string { return slices.Clone(messageTypes) }

// Limits of messages, in bytes. Messages pass the master, which is no place for
// more.
const (
	// MaxUpload is the most that a file of MessageUpload holds.
	MaxUpload = 1 << 20
	// MaxMessage is the most that an executor reads of a message.
	MaxMessage = MaxUpload/3*4 + 64<<10
)

// Message is what a framework sends to an executor as the JSON data of a Mesos
// MESSAGE. Each is answered by one MessageResult with its id. Messages may be
// lost on either way: one without an answer is sent again with the same id, and
// an executor that has seen it answers without doing it twice.
type Message struct {
	// Version is TaskSpecVersion; an executor refuses others.
	Version string `json:"version"`
	// ID is chosen by the sender, unique for the executor.
	ID   string      `json:"id"`
	Type MessageType `json:"type"`
	// Task is the id or the name of the task that is meant; it may be empty when
	// the taskgroup has only one.
	Task string `json:"task,omitempty"`
	// Signal is for MessageSignal: a name such as SIGHUP or HUP, or a number.
	Signal string `json:"signal,omitempty"`
	// Resources is for MessageResources.
	Resources *ResourceChange `json:"resources,omitempty"`
	// Exec is for MessageExec.
	Exec *ExecRequest `json:"exec,omitempty"`
	// Upload is for MessageUpload.
	Upload *UploadFile `json:"upload,omitempty"`
	// Commit is for MessageCommit.
	Commit *CommitImage `json:"commit,omitempty"`
	// Logs is for MessageLogs.
	Logs *LogRequest `json:"logs,omitempty"`
}

// LogRequest asks for the files of a process's logPath.
type LogRequest struct {
	// List asks for their names; what follows is for the text of one.
	List bool `json:"list,omitempty"`
	// File is a name without a directory; empty is the file written to last.
	File string `json:"file,omitempty"`
	// Tail is the number of lines from the end, looked for in the last 4 MiB; negative means all.
	Tail int `json:"tail,omitempty"`
	// Follow goes on with what is written, over rotations, until the process ends.
	Follow bool `json:"follow,omitempty"`
}

// MaxLogFiles is the most that the answer to MessageLogs lists.
const MaxLogFiles = 500

// LogFile is a file that logPath names.
type LogFile struct {
	Name string `json:"name"`
	// Size is in bytes, without what rotation has put aside.
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// UploadFile is a file for a running task. It replaces what has its name in one
// step, a symbolic link too, which is not followed; directories must be there.
type UploadFile struct {
	// Path is absolute and beneath the container's root, or for a process
	// relative to its workPath or absolute and beneath that.
	Path string `json:"path"`
	// Content has at most MaxUpload bytes; in JSON it is base64.
	Content []byte `json:"content"`
	// Mode holds permission bits; 0 keeps those of the file that is replaced, and
	// is 0644 for a new one.
	Mode uint32 `json:"mode,omitempty"`
	// User owns the file: a name or number of the container, optionally with a
	// group's number (1000:1000), or an account of the agent for a process. Empty keeps
	// the owner of the file that is replaced; a new one is the task's user's.
	User string `json:"user,omitempty"`
}

// CommitImage asks for an image of a container's files as they are now, without
// its volumes, with the image's own environment in place of the task's.
type CommitImage struct {
	// Image is its name with an optional tag. An image that is there is not replaced.
	Image string `json:"image"`
}

// ExecRequest is a command to be run beside a task, as its user, in its
// directory and with its environment.
type ExecRequest struct {
	Command []string `json:"command"`
	// Stdin tells that it gets input; without it, it reads nothing.
	Stdin bool `json:"stdin,omitempty"`
	// TTY gives it a terminal of Width and Height characters; 0 leaves the size open.
	TTY    bool   `json:"tty,omitempty"`
	Width  uint16 `json:"width,omitempty"`
	Height uint16 `json:"height,omitempty"`
}

// ExecSession is where a session waits for whoever asked for it, for some
// seconds: a TCP port at the agent's address, whose first bytes must be the
// token and a line feed. It takes one connection.
type ExecSession struct {
	Port  int    `json:"port"`
	Token string `json:"token"`
}

// ResourceChange says which amounts are to change. What is absent stays as the
// executor has it: as the task was started, or as an earlier change left it.
type ResourceChange struct {
	Requests ResourceAmounts `json:"requests,omitzero"`
	Limits   ResourceAmounts `json:"limits,omitzero"`
}

// ResourceAmounts are cores, MiB of memory and, for a limit, processes with their
// threads; nil means no change.
type ResourceAmounts struct {
	CPUs  *float64 `json:"cpus,omitempty"`
	MemMB *float64 `json:"memMB,omitempty"`
	// Pids is -1 for any number.
	Pids *int64 `json:"pids,omitempty"`
}

// ResourceUpdate holds the amounts from now on. They replace all that was set
// before; a limit of 0 is none for CPUs, for memory it is the request, and for
// processes what the task was started with.
type ResourceUpdate struct {
	Requests TaskResources `json:"requests"`
	Limits   TaskResources `json:"limits"`
}

// MessageResult is an executor's answer.
type MessageResult struct {
	Version string      `json:"version"`
	ID      string      `json:"id"`
	Type    MessageType `json:"type"`
	// Task is the id of the task, when one was found.
	Task string `json:"task,omitempty"`
	// Resources are what the task has from now on, after MessageResources.
	Resources *ResourceUpdate `json:"resources,omitempty"`
	// Exec is where the session is, after MessageExec and MessageLogs.
	Exec *ExecSession `json:"exec,omitempty"`
	// LogFiles are those that MessageLogs lists, the one written to last first.
	LogFiles []LogFile `json:"logFiles,omitempty"`
	// ImageID is that of the image that MessageCommit has made.
	ImageID string `json:"imageID,omitempty"`
	// Error says why it was not done; empty means that it was.
	Error string `json:"error,omitempty"`
}

// Check says what is wrong with a message apart from the task that it names.
func (m *Message) Check() error {
	switch {
	case m.Version != TaskSpecVersion:
		return fmt.Errorf("version %q of a message is unknown, this executor understands %s", clip(m.Version), TaskSpecVersion)
	case m.ID == "" || len(m.ID) > 128:
		return errors.New("id of a message must have 1 to 128 characters")
	}
	switch m.Type {
	case MessageSignal:
		if m.Signal == "" {
			return errors.New("signal is missing; name one, such as SIGHUP")
		}
	case MessageResources:
		if m.Resources == nil {
			return errors.New("resources are missing")
		}
		return m.Resources.check()
	case MessageExec:
		if m.Exec == nil || len(m.Exec.Command) == 0 || m.Exec.Command[0] == "" {
			return errors.New("exec has no command; give one, such as /bin/sh")
		}
	case MessageUpload:
		return m.Upload.check()
	case MessageCommit:
		return m.Commit.check()
	case MessageLogs:
		return m.Logs.check()
	case MessageReload, MessageRestart:
	default:
		return fmt.Errorf("type %q of a message is unknown; this executor understands %s%s", clip(string(m.Type)), strings.Join(messageTypes, ", "), didYouMean(string(m.Type), messageTypes))
	}
	return nil
}

func (u *UploadFile) check() error {
	switch {
	case u == nil || u.Path == "" || strings.HasSuffix(u.Path, "/"):
		return errors.New("upload names no file; give its path in the task, such as /etc/app.conf")
	case len(u.Path) > 4095 || strings.ContainsRune(u.Path, 0):
		return fmt.Errorf("path %q is none of a file", clip(u.Path))
	case len(u.Content) > MaxUpload:
		return fmt.Errorf("file %q has %d bytes, and at most %d are sent; put larger ones into the image, an archive or a volume", clip(u.Path), len(u.Content), MaxUpload)
	case u.Mode > 0o777:
		return fmt.Errorf("mode %#o of file %q has other than permission bits; use 0 to 0777", u.Mode, clip(u.Path))
	}
	return nil
}

func (l *LogRequest) check() error {
	switch {
	case l == nil:
		return errors.New("logs say neither what to list nor what to read")
	case len(l.File) > 255 || strings.ContainsAny(l.File, "/\x00") || l.File == "." || l.File == "..":
		return fmt.Errorf("file %q is no name of a file in a directory", clip(l.File))
	}
	return nil
}

func (c *CommitImage) check() error {
	if c == nil || c.Image == "" {
		return errors.New("commit names no image; give one, such as team/app:before")
	}
	if strings.ContainsAny(c.Image, "@ \t\n") || strings.HasPrefix(c.Image, "sha256:") || len(c.Image) > 255 {
		return fmt.Errorf("image %q is no name for a new image; use one such as team/app:before, without a digest", clip(c.Image))
	}
	return nil
}

func (c *ResourceChange) check() error {
	if *c == (ResourceChange{}) {
		return errors.New("resources name no amount that is to change")
	}
	var errs Errors
	for _, x := range []struct {
		path string
		v    *float64
		most float64
	}{
		{"requests.cpus", c.Requests.CPUs, maxCPUs}, {"limits.cpus", c.Limits.CPUs, maxCPUs},
		{"requests.memMB", c.Requests.MemMB, maxMemMB}, {"limits.memMB", c.Limits.MemMB, maxMemMB},
	} {
		if x.v != nil && (*x.v < 0 || *x.v > x.most) {
			errs.Add("resources."+x.path, *x.v, "is no sensible amount")
		}
	}
	if c.Requests.Pids != nil {
		errs.Add("resources.requests.pids", *c.Requests.Pids, "is nothing that is requested; give it as a limit")
	}
	if n := c.Limits.Pids; n != nil && (*n < -1 || *n == 0) {
		errs.Add("resources.limits.pids", *n, "must be a number of processes, or -1 for no limit")
	}
	errs = append(errs, exceeding("cpus", value(c.Requests.CPUs), value(c.Limits.CPUs))...)
	errs = append(errs, exceeding("memMB", value(c.Requests.MemMB), value(c.Limits.MemMB))...)
	return errs.Sorted()
}

// The largest amounts that make any sense.
const (
	maxCPUs  = 1 << 20
	maxMemMB = 1 << 40
)

// Apply returns what comes of the change, with before as the amounts until now.
func (c *ResourceChange) Apply(before ResourceUpdate) (ResourceUpdate, error) {
	after := before
	for _, x := range []struct {
		to   *float64
		from *float64
	}{
		{&after.Requests.CPUs, c.Requests.CPUs}, {&after.Limits.CPUs, c.Limits.CPUs},
		{&after.Requests.MemMB, c.Requests.MemMB}, {&after.Limits.MemMB, c.Limits.MemMB},
	} {
		if x.from != nil {
			*x.to = *x.from
		}
	}
	if c.Limits.Pids != nil {
		after.Limits.Pids = *c.Limits.Pids
	}
	errs := append(exceeding("cpus", after.Requests.CPUs, after.Limits.CPUs), exceeding("memMB", after.Requests.MemMB, after.Limits.MemMB)...)
	if err := errs.Sorted(); err != nil {
		return before, fmt.Errorf("%w; change both", err)
	}
	return after, nil
}

// exceeding is the error of a request above its limit.
func exceeding(path string, request, limit float64) (errs Errors) {
	if limit > 0 && request > limit {
		errs.Add("resources.requests."+path, request, "is more than the limit of %v", limit)
	}
	return errs
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}
