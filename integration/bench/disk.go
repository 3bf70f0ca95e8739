package main

import (
	"os"
	"path/filepath"
	"time"
)

// syncRate is how many records of a few hundred bytes can be appended to one
// file of a directory in a second when each is synced alone.
func syncRate(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	record := make([]byte, 300)
	const long = 500 * time.Millisecond
	n, began := 0, time.Now()
	for time.Since(began) < long {
		if _, err := f.Write(record); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
