package keeper

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"tandem/internal/procattr"
)

// Protocol is the version of the protocol that this package speaks. A keeper
// outlives the daemon that started it, so a daemon must be able to speak to every
// keeper that an earlier release left running: a version is added to, never
// changed, and testdata holds a conversation in each.
//
// A connection is a unix stream socket in the keeper's directory. Each message
// is a frame: its length in four bytes, big endian, then a JSON object, unknown
// fields of which are passed over. File descriptors travel with the first byte
// of their frame (unix(7), SCM_RIGHTS), in the order that the request names. The
// daemon sends requests, first of all hello; each gets one answer with its
// number, not always in order.
const Protocol = 2

// protocolAttrs is the first version in which a Spec has attributes; an older
// keeper would pass them over.
const protocolAttrs = 2

// The operations, all of protocol 1.
const (
	// opHello: Version is the daemon's highest. Answer: the one to speak, the
	// keeper's build, and all entries.
	opHello = "hello"
	// opSpawn: Spec and its files. Answer: the entry. A key that was started before is
	// not started again: Existing.
	opSpawn = "spawn"
	// opClaim: Key, Pid and Start of a process that put itself into the background
	// and will be the keeper's child, or was. Answer: the entry.
	opClaim = "claim"
	// opLook: Key of a process whose end was seen. Answer: the entry; when it has
	// ended, how.
	opLook = "look"
	// opStray: Pid, and Start, the earliest start time, of a process that nobody
	// claimed. Answer: an entry without a key.
	opStray = "stray"
	// opForget: Key, the prefix of keys that no daemon will ask for again.
	opForget = "forget"
	// opRetire: end, unless anything runs.
	opRetire = "retire"
)

type request struct {
	Seq     uint64 `json:"seq"`
	Op      string `json:"op"`
	Version int    `json:"version,omitempty"`
	Key     string `json:"key,omitempty"`
	Pid     int    `json:"pid,omitempty"`
	Start   uint64 `json:"start,omitempty"`
	Spec    *Spec  `json:"spec,omitempty"`
	// Files says what each file descriptor of the frame is.
	Files []fileRole `json:"files,omitempty"`

	received []*os.File
}

// fileRole says what a file descriptor is for.
type fileRole string

const (
	fileStdout fileRole = "stdout"
	fileStderr fileRole = "stderr"
	// fileCgroup is the directory of the control group to clone into.
	fileCgroup fileRole = "cgroup"
	// fileProcs is a file that takes a process into a control group when its number is written to it.
	fileProcs fileRole = "procs"
	// fileNetNS is the network namespace to start in. Since protocol 2.
	fileNetNS fileRole = "netns"
)

type answer struct {
	Seq     uint64 `json:"seq"`
	Version int    `json:"version,omitempty"`
	Build   string `json:"build,omitempty"`
	// Live is how many processes the keeper is the parent of.
	Live     int     `json:"live,omitempty"`
	Entries  []Entry `json:"entries,omitempty"`
	Entry    *Entry  `json:"entry,omitempty"`
	Existing bool    `json:"existing,omitempty"`
	Error    *fault  `json:"error,omitempty"`
}

// fault is an error that crosses the socket with its number, when it has one.
type fault struct {
	Code  string        `json:"code,omitempty"`
	Text  string        `json:"text"`
	Errno syscall.Errno `json:"errno,omitempty"`
}

// Codes of faults.
const (
	codeUnknown = "unknown"
	codeBusy    = "busy"
	codeInvalid = "invalid"
	codeVersion = "version"
	codeEnding  = "ending"
)

// Error returns the text.
func (f *fault) Error() string { return f.Text }

// Unwrap gives the error number back to errors.Is.
func (f *fault) Unwrap() error {
	switch {
	case f.Errno != 0:
		return f.Errno
	case f.Code == codeUnknown:
		return ErrUnknown
	case f.Code == codeBusy:
		return ErrBusy
	case f.Code == codeEnding:
		return ErrLost
	}
	return nil
}

func faultOf(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	f = &fault{Text: err.Error()}
	_ = errors.As(err, &f.Errno)
	return f
}

var (
	// ErrUnknown says that the keeper has no such process.
	ErrUnknown = errors.New("the keeper does not know it")
	// ErrBusy says that the keeper has processes and does not end.
	ErrBusy = errors.New("the keeper has processes")
	// ErrLost says that the connection broke: whether the request had an effect
	// is for the next connection to ask.
	ErrLost = errors.New("the connection to the keeper broke")

	// ErrTooOld says that the keeper comes from an earlier release and cannot give
	// a process what is asked for.
	ErrTooOld = errors.New("the keeper that runs comes from an earlier release, which lacks this; it is replaced once it has no process")

	errUnknown = &fault{Code: codeUnknown, Text: "unknown key"}
)

// Spec is a process to start, in a session of its own, with /dev/null as stdin.
type Spec struct {
	// Key names this start for ever: letters, digits, dots and dashes.
	Key  string   `json:"key"`
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	// As is whom it runs as; nil is the keeper's own user.
	As *Credential `json:"as,omitempty"`
	// Tag is kept with the entry, for the daemon's use.
	Tag string `json:"tag,omitempty"`
	// OOMScoreAdj is as proc_pid_oom_score_adj(5) describes.
	OOMScoreAdj int `json:"oomScoreAdj,omitempty"`
	// These, and NetNS, are as package procattr has them. Since protocol 2.
	NoNewPrivs bool              `json:"noNewPrivs,omitempty"`
	Umask      *int              `json:"umask,omitempty"`
	Nice       *int              `json:"nice,omitempty"`
	Rlimits    []procattr.Rlimit `json:"rlimits,omitempty"`

	// Stdout and Stderr must be open for writing.
	Stdout *os.File `json:"-"`
	Stderr *os.File `json:"-"`
	// Cgroup is a directory of a cgroup v2 hierarchy to be cloned into, or nil.
	Cgroup *os.File `json:"-"`
	// Procs are the cgroup.procs files of further groups.
	Procs []*os.File `json:"-"`
	// NetNS is the network namespace to start in, or nil for the keeper's.
	NetNS *os.File `json:"-"`
}

func (s *Spec) attrs() *procattr.Attrs {
	return &procattr.Attrs{NoNewPrivs: s.NoNewPrivs, Umask: s.Umask, Nice: s.Nice, Rlimits: s.Rlimits, NetNS: s.NetNS}
}

// needs is the lowest version of the protocol that has all of a spec.
func (s *Spec) needs() int {
	if s.NoNewPrivs || s.Umask != nil || s.Nice != nil || len(s.Rlimits) > 0 || s.NetNS != nil {
		return protocolAttrs
	}
	return 1
}

// Credential is a user with its groups, by number.
type Credential struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

func (r *request) attach() ([]*os.File, error) {
	s := r.Spec
	if s == nil {
		return nil, nil
	}
	r.Files = nil
	var files []*os.File
	add := func(role fileRole, f *os.File) {
		if f != nil {
			r.Files, files = append(r.Files, role), append(files, f)
		}
	}
	add(fileStdout, s.Stdout)
	add(fileStderr, s.Stderr)
	add(fileCgroup, s.Cgroup)
	for _, f := range s.Procs {
		add(fileProcs, f)
	}
	add(fileNetNS, s.NetNS)
	if len(files) > maxFiles {
		return nil, fmt.Errorf("%d files in one request, %d at most", len(files), maxFiles)
	}
	return files, nil
}

// detach gives the received files their places.
func (r *request) detach() error {
	s := r.Spec
	if s == nil || len(r.Files) != len(r.received) {
		return &fault{Code: codeInvalid, Text: fmt.Sprintf("%d files came, %d were named", len(r.received), len(r.Files))}
	}
	for i, f := range r.received {
		switch r.Files[i] {
		case fileStdout:
			s.Stdout = f
		case fileStderr:
			s.Stderr = f
		case fileCgroup:
			s.Cgroup = f
		case fileProcs:
			s.Procs = append(s.Procs, f)
		case fileNetNS:
			s.NetNS = f
		default:
			return &fault{Code: codeInvalid, Text: fmt.Sprintf("file of kind %q: this keeper is too old for it", r.Files[i])}
		}
	}
	if s.Stdout == nil || s.Stderr == nil {
		return &fault{Code: codeInvalid, Text: "stdout and stderr are needed"}
	}
	return nil
}
