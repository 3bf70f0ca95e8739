package execstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Terminal is what a session is attached to, whether or not it has a TTY.
type Terminal struct {
	// Stdin is nil when there is no input. Stdout gets everything with a TTY.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resize brings new sizes of the TTY; it is never closed.
	Resize <-chan Size
}

// Limits of the end of a session.
const (
	// endWait is how long the word of the end may take.
	endWait = 15 * time.Second
	// linger is how long the end of a session waits for the other side to hang up.
	linger = 5 * time.Second
)

// Serve is the command's side of a session: it runs a command with what comes over
// the connection, tells how it ended, and waits a while for the other side to hang
// up. in reads the connection, of which some may be buffered; stdin tells that
// there is input. The context that run gets ends with the one given and when the
// other side goes. The caller closes the connection.
func Serve(ctx context.Context, conn net.Conn, in io.Reader, stdin bool, run func(context.Context, Terminal) (int, error)) error {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	out := NewWriter(conn)
	sizes := make(chan Size, 1)
	t := Terminal{Stdout: out.To(Stdout), Stderr: out.To(Stderr), Resize: sizes}
	pr, pw := io.Pipe()
	if stdin {
		t.Stdin = pr
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		defer cancel() // nobody is left to read what the command writes
		stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
		defer stop()
		receive(NewReader(in), stdin, pw, sizes)
	}()
	defer OnHangup(ctx, conn, func() { _ = conn.SetReadDeadline(time.Now()); cancel() })()
	code, err := run(work, t)
	end := End{Code: code}
	if err != nil {
		end.Error = err.Error()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(endWait))
	sendErr := out.SendJSON(Ended, end)
	pr.Close()
	// The other side hangs up. Closing first, with input still unread, would make
	// the kernel throw away what is on its way; see tcp(7).
	_ = conn.SetReadDeadline(time.Now().Add(linger))
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // one that is gone needs no end
	}
	<-reading
	return errors.Join(err, sendErr)
}

// receive hands on what the other side sends, until it goes away.
func receive(r *Reader, stdin bool, input *io.PipeWriter, sizes chan Size) {
	defer input.CloseWithError(io.ErrUnexpectedEOF)
	for {
		k, payload, err := r.Next()
		if err != nil {
			return
		}
		switch k {
		case Stdin:
			if len(payload) == 0 {
				input.Close()
			} else if stdin {
				_, _ = input.Write(payload) // a command that reads no more does not end the session
			}
		case Resize:
			var s Size
			if json.Unmarshal(payload, &s) != nil {
				return
			}
			select {
			case <-sizes: // an older one that nobody has taken
			default:
			}
			sizes <- s
		default:
			return
		}
	}
}

// Attach is the user's side of a session: it passes on what the terminal brings
// and shows what comes, until the command ends, and returns its exit code. An error
// of it means that the command could not be run, or that nobody knows how it ended.
// When the context ends, so does the session. It closes the connection.
func Attach(ctx context.Context, conn io.ReadWriteCloser, t Terminal) (int, error) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	out := NewWriter(conn)
	if t.Stdin != nil {
		// It is not waited for: it ends with its reader, or with the connection.
		go func() {
			if _, err := io.Copy(out.To(Stdin), t.Stdin); err == nil {
				_ = out.Send(Stdin, nil) // one that has ended needs no end of its input
			}
		}()
	}
	go func() {
		for {
			select {
			case s := <-t.Resize:
				if out.SendJSON(Resize, s) != nil {
					return // the reader notices the end
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	for r := NewReader(conn); ; {
		k, payload, err := r.Next()
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			return 0, fmt.Errorf("the session has broken off, and how the command ends is not known: %w", err)
		}
		switch k {
		case Stdout:
			_, err = t.Stdout.Write(payload)
		case Stderr:
			_, err = t.Stderr.Write(payload)
		case Ended:
			var end End
			if err := json.Unmarshal(payload, &end); err != nil {
				return 0, fmt.Errorf("the end of the session is not understood: %w", err)
			}
			if end.Error != "" {
				return 0, errors.New(end.Error)
			}
			return end.Code, nil
		default:
			return 0, fmt.Errorf("the session brought a frame of kind %d, which is none of its output", k)
		}
		if err != nil {
			return 0, err
		}
	}
}
