// Command engineping tells the scripts whether a Docker Engine answers, by the
// question that Tandem itself asks and at the address that it uses (DOCKER_HOST).
// The docker command cannot be relied on for that: Debian 13 has it in a package
// of its own, and a context of its configuration may point it to another engine.
//
// It prints the engine's version and exits 0, or prints why there is none and exits 1.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/docker/docker/client"
)

func main() {
	limit := flag.Duration("limit", 5*time.Second, "how long to wait for the answer")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	version, err := ping(ctx)
	cancel()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(version)
}

// ping returns the version of the engine at DOCKER_HOST.
func ping(ctx context.Context) (string, error) {
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return "", fmt.Errorf("DOCKER_HOST %q: %w", os.Getenv("DOCKER_HOST"), err)
	}
	defer engine.Close()
	v, err := engine.ServerVersion(ctx)
	if err != nil {
		return "", fmt.Errorf("no answer at %s: %w", engine.DaemonHost(), err)
	}
	return v.Version, nil
}
