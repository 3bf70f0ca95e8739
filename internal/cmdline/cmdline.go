// Package cmdline splits the command lines of artifacts, in one way for start
// and stop commands, and for commands of checks. It must never run a
// shell for a line that needs none: the shell would be between the caller and the program.
package cmdline

import (
	"errors"
	"strings"
)

// builtins are the words that only a shell understands.
var builtins = map[string]bool{
	".": true, ":": true, "cd": true, "eval": true, "exec": true, "exit": true, "export": true, "read": true,
	"set": true, "shift": true, "source": true, "trap": true, "ulimit": true, "umask": true, "unset": true, "wait": true,
	"if": true, "for": true, "while": true, "until": true, "case": true, "{": true, "!": true, "command": true,
}

// Split makes the arguments of a line as one would type it. A line without shell
// syntax is split at blanks, so that the program is run directly and gets the
// signals; anything else becomes /bin/sh -c.
func Split(line string) (argv []string, err error) {
	argv = strings.Fields(line)
	switch {
	case len(argv) == 0:
		return nil, errors.New("the command is empty")
	case strings.IndexByte(line, 0) >= 0:
		return nil, errors.New("the command holds a zero byte")
	case strings.ContainsAny(line, "\"'`$\\|&;<>()*?[]#~!{}\n") || strings.Contains(argv[0], "=") || builtins[argv[0]]:
		return []string{"/bin/sh", "-c", line}, nil
	}
	return argv, nil
}
