package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"tandem/api"
	"tandem/internal/netns"
)

// patient is a task's target with the namespace kept open between checks.
type patient struct {
	Target
	// ctx ends when the task is not checked any more.
	ctx    context.Context //nolint:containedctx // the time in which the task is checked, which Forget ends
	cancel context.CancelFunc

	mu     sync.Mutex
	opened bool
	closed bool
	ns     *os.File
}

// errOver is what a check ends with that was forgotten while it was made.
var errOver = errors.New("the task is not checked any more")

// enterError says that the task's network could not be entered, which says nothing of the task.
type enterError struct{ err error }

func (e *enterError) Error() string {
	return "the task's network namespace cannot be entered: " + e.err.Error()
}
func (e *enterError) Unwrap() error { return e.err }

// namespace opens the task's namespace at the first check and keeps it.
func (p *patient) namespace(ctx context.Context) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errOver
	case p.opened, p.Netns == nil:
		return p.ns, nil
	}
	ns, err := p.Netns(ctx)
	if err != nil {
		return nil, err
	}
	p.ns, p.opened = ns, true
	return ns, nil
}

// close ends checks under way. A dial that has the namespace in hand finds it closed.
func (p *patient) close() {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.ns != nil {
		p.ns.Close()
	}
}

// probe makes one check, within its timeout.
func (p *patient) probe(c *Check) Outcome {
	limit := c.Timeout
	if limit <= 0 {
		limit = c.Interval
	}
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	var o Outcome
	var err error
	switch c.Type {
	case api.CheckCommand:
		o, err = p.command(ctx, &c.Command)
	case api.CheckHTTP:
		o, err = p.http(ctx, c)
	case api.CheckGRPC:
		err = p.grpc(ctx, c)
	default:
		o, err = p.tcp(ctx, c)
	}
	if err == nil && o.Message == "" {
		o.Verdict = Passed
		return o
	}
	if err == nil {
		o.Verdict = Failed
		return o
	}
	return p.judge(ctx, o, err, limit)
}

// judge says what an error tells of the task, and in which words.
func (p *patient) judge(ctx context.Context, o Outcome, err error, limit time.Duration) Outcome {
	var enter *enterError
	var ran *unclearError
	o.Verdict, o.Message = Failed, clean(err.Error())
	switch {
	case p.ctx.Err() != nil, errors.Is(err, errOver), errors.As(err, &enter), errors.As(err, &ran):
		o.Verdict = Unclear
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		o.Value, o.Message = nil, fmt.Sprintf("no answer within %s", limit)
	}
	return o
}

// dial connects to a port of the task, at the first of its addresses that answers.
func (p *patient) dial(ctx context.Context, port int) (conn net.Conn, err error) {
	err = p.reach(ctx, port, func(ns *os.File, to netip.AddrPort) error {
		conn, err = netns.DialTCP(ctx, ns, to)
		return err
	})
	return conn, err
}

// reach tries the task's addresses one after another.
func (p *patient) reach(ctx context.Context, port int, try func(ns *os.File, to netip.AddrPort) error) error {
	ns, err := p.namespace(ctx)
	if err != nil {
		return &enterError{err}
	}
	if len(p.Addresses) == 0 {
		return &enterError{errors.New("it has no address")}
	}
	var first error
	for _, a := range p.Addresses {
		to := netip.AddrPortFrom(a, uint16(port))
		err := try(ns, to)
		var number syscall.Errno
		var refused *net.OpError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &number) && elsewhere[number]:
			err = fmt.Errorf("%s: %w", to, number)
		case errors.As(err, &refused) && !ours[number]:
			return err
		default:
			return &enterError{err}
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// elsewhere are the errors after which another address may do.
var elsewhere = map[syscall.Errno]bool{
	syscall.ECONNREFUSED: true, syscall.ENETUNREACH: true, syscall.EHOSTUNREACH: true, syscall.EADDRNOTAVAIL: true,
	syscall.EAFNOSUPPORT: true, syscall.EINVAL: true,
}

// ours are the errors that tell of the executor and not of the task.
var ours = map[syscall.Errno]bool{
	syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOMEM: true, syscall.ENOBUFS: true,
}

// tcp is content when a connection is accepted.
func (p *patient) tcp(ctx context.Context, c *Check) (Outcome, error) {
	err := p.reach(ctx, c.Port, func(ns *os.File, to netip.AddrPort) error { return netns.ReachTCP(ctx, ns, to) })
	if err != nil {
		return Outcome{Value: new(0)}, err
	}
	return Outcome{Value: new(1)}, nil
}

// unclearError says that a command could not be run, which says nothing of the task.
type unclearError struct{ err error }

func (e *unclearError) Error() string { return "the command could not be run: " + e.err.Error() }
func (e *unclearError) Unwrap() error { return e.err }

// command is content with exit code 0.
func (p *patient) command(ctx context.Context, c *Command) (Outcome, error) {
	if p.Exec == nil {
		return Outcome{}, &unclearError{errors.New("the runtime cannot run commands in tasks")}
	}
	r, err := p.Exec(ctx, *c)
	switch {
	case err != nil && r.Started && ctx.Err() != nil:
		return Outcome{}, ctx.Err()
	case err != nil:
		return Outcome{}, &unclearError{err}
	case r.Code == 0:
		return Outcome{Value: new(0)}, nil
	}
	text := fmt.Sprintf("exit code %d", r.Code)
	if out := clean(strings.TrimSpace(r.Output)); out != "" {
		text += ": " + out
	}
	return Outcome{Value: new(r.Code), Message: text}, nil
}

// longest is how much of what a task said goes into a message.
const longest = 300

// clean makes a text of a task fit for a message: valid, on one line, not long. The end says most.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > longest {
		s = "…" + strings.ToValidUTF8(s[len(s)-longest:], "")
	}
	return s
}
