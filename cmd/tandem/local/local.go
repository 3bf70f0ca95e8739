// Package local runs the whole stack on one machine for "tandem local": an
// embedded Mesos master and agents, the scheduler, and the process daemon as a
// child process. It is for a laptop and for tests; a cluster runs the same
// parts as programs of their own on Apache Mesos.
//
// It must never leave anything behind that its data directory does not know
// of: what a killed stack left is adopted or ended by the next one.
package local

// masterIP is where the embedded master listens.
const masterIP = "127.0.0.1"
