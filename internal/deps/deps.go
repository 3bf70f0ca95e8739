//go:build deps

// Package deps keeps module versions in go.mod while the rooms that import them are being written.
package deps

import (
	_ "github.com/docker/docker/client"
	_ "github.com/docker/docker/api/types/container"
	_ "github.com/docker/docker/pkg/stdcopy"
	_ "github.com/docker/go-connections/nat"
	_ "github.com/gogo/protobuf/proto"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/mesos/mesos-go/api/v1/lib"
	_ "github.com/mesos/mesos-go/api/v1/lib/agent"
	_ "github.com/mesos/mesos-go/api/v1/lib/agent/calls"
	_ "github.com/mesos/mesos-go/api/v1/lib/executor"
	_ "github.com/mesos/mesos-go/api/v1/lib/executor/calls"
	_ "github.com/mesos/mesos-go/api/v1/lib/httpcli/httpsched"
	_ "github.com/mesos/mesos-go/api/v1/lib/httpcli/httpexec"
	_ "github.com/mesos/mesos-go/api/v1/lib/master"
	_ "github.com/mesos/mesos-go/api/v1/lib/scheduler"
	_ "github.com/mesos/mesos-go/api/v1/lib/scheduler/calls"
	_ "github.com/opencontainers/runtime-spec/specs-go"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/spf13/cobra"
	_ "go.etcd.io/bbolt"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/yaml"
)
