package cli

import "errors"

// connect makes the client for a scheduler's address.
func connect(string) (backend, error) { return nil, errors.New("not yet") }
