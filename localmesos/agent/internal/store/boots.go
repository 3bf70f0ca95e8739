package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
)

func (s *Store) boots() string { return filepath.Join(s.meta(), "simulated_boots") }

// SimulatedBoots is how often the machine was made to look as if it had been
// started anew; 0 unless somebody asked for it.
func (s *Store) SimulatedBoots() (int, error) {
	b, err := s.read(s.boots())
	if errors.Is(err, ErrMissing) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", s.boots(), err)
	}
	return n, nil
}

// CountSimulatedBoot makes the machine look as if it had been started anew.
func (s *Store) CountSimulatedBoot() error {
	n, err := s.SimulatedBoots()
	if err != nil {
		return err
	}
	return s.write(s.boots(), []byte(strconv.Itoa(n+1)))
}
