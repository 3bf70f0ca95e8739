//go:build race

package failpoint

// RaceVar is the variable with the settings of the race detector, "" in a program without it.
const RaceVar = "GORACE"
