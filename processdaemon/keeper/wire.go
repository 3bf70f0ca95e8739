package keeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxFrame bounds a message: arguments and environment of a process are at
	// most a quarter of the stack limit, usually 2 MiB (execve(2)).
	maxFrame = 32 << 20
	// maxFiles bounds the file descriptors of a message.
	maxFiles  = 16
	headBytes = 4
)

// send writes one frame. The caller sees to it that frames do not mix.
func send(c *net.UnixConn, message any, files []*os.File) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("message of %d bytes, the most is %d", len(body), maxFrame)
	}
	frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, headBytes+len(body)), uint32(len(body))), body...)
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.WriteMsgUnix(frame, rights, nil)
	if err != nil {
		return err
	}
	if n < len(frame) {
		_, err = c.Write(frame[n:])
	}
	return err
}

// receive reads one frame into message and returns the files that came along.
func receive(c *net.UnixConn, message any) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	var head [headBytes]byte
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	for got := 0; got < headBytes; {
		n, oobn, flags, _, err := c.ReadMsgUnix(head[got:], oob)
		if oobn > 0 {
			more, rightsErr := filesOf(oob[:oobn])
			files = append(files, more...)
			if rightsErr != nil {
				return files, rightsErr
			}
		}
		switch {
		case err != nil:
			return files, err
		case n == 0:
			return files, io.EOF
		case flags&unix.MSG_CTRUNC != 0:
			return files, errors.New("more file descriptors than a message may have")
		}
		got += n
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame {
		return files, fmt.Errorf("message of %d bytes, the most is %d", size, maxFrame)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		return files, err
	}
	return files, json.Unmarshal(body, message)
}

func filesOf(oob []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var out []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials, say, which nobody asked for
		}
		for _, fd := range fds {
			// Go reads with MSG_CMSG_CLOEXEC, so none leaks into a process.
			out = append(out, os.NewFile(uintptr(fd), "received"))
		}
	}
	return out, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
