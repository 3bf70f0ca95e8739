// Package master is the embedded Mesos master: the v1 scheduler API, offers and
// their allocation, agents and their tasks, and the endpoints that tools read. It
// is for one machine and for tests, and is held to the observable behaviour of
// Apache Mesos 1.12.
//
// One event loop owns all state; handlers of HTTP requests only pass closures to
// it. The master must never know what a framework is for: every framework is
// treated as Apache Mesos treats it.
package master

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/fault"
	"tandem/localmesos/internal/credentials"
	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/ssl"
	"tandem/localmesos/internal/wire"
)

// Version is the version of Apache Mesos whose API the master speaks.
const Version = "1.12.0"

// Master is a running master. Make it with New, then Start it.
type Master struct {
	flags   Flags
	log     *slog.Logger
	id      string
	info    mesos.MasterInfo
	started time.Time

	listener net.Listener
	server   *http.Server
	serving  chan struct{}
	cancel   context.CancelFunc
	closing  sync.Once
	closeErr error

	loop     *loop
	registry *registry
	// credentials are those of frameworks; nil when they need none.
	credentials *credentials.List
	faults      *fault.Set // nil unless enabled

	// All below belongs to the loop.
	frameworks    map[string]*framework
	completed     []*framework // oldest first
	agents        map[string]*agent
	recovered     map[string]mesos.AgentInfo // in the registry, not yet back
	unreachable   map[string]unreachableAgent
	subscribers   []*subscriber // oldest first
	offers        map[string]*offer
	nextFramework int
	nextAgentID   int
	nextNumber    int
	nextOffer     int
	turn          uint64
	allocations   uint64
	counters      counters
	weights       map[string]float64
	shares        shares
	least         []resource.Quantities // what is worth an offer: any of them
	removalAt     time.Time             // when the next agent may be given up
	// blind tells that the registry was lost: unknown agents may be on their way back.
	blind bool
	// ending tells that streams end because the master does, which means
	// nothing for those at the other end.
	ending bool
}

// New checks the flags, reads the registry and listens; nothing is served before Start.
func New(flags Flags) (*Master, error) {
	flags = flags.withDefaults()
	if err := flags.validate(); err != nil {
		return nil, err
	}
	creds, err := readCredentials(flags)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := ssl.Server(flags.SSL)
	if err != nil {
		return nil, fmt.Errorf("mesos master: %w", err)
	}
	reg, err := openRegistry(flags)
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	address := net.JoinHostPort(flags.IP, strconv.Itoa(flags.Port))
	ln, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		reg.close()
		return nil, fmt.Errorf("mesos master: cannot listen on %s: %w; choose another --port", address, err)
	}
	if tcp, ok := ln.Addr().(*net.TCPAddr); ok {
		flags.Port = tcp.Port
	}
	if tlsConfig != nil {
		ln = tls.NewListener(ln, tlsConfig)
	}
	m := &Master{
		flags: flags, log: flags.Logger.With("component", "mesos master"), id: wire.NewUUID(), started: time.Now(),
		listener: ln, serving: make(chan struct{}), registry: reg, credentials: creds,
		frameworks: map[string]*framework{}, agents: map[string]*agent{}, offers: map[string]*offer{},
		recovered: map[string]mesos.AgentInfo{}, unreachable: map[string]unreachableAgent{}, counters: counters{},
		shares: newShares(),
	}
	m.info = masterInfo(m.id, flags)
	m.loop = newLoop()
	m.faults = m.newFaults()
	m.weights, _ = parseWeights(flags.Weights) // validate has read them
	m.least, _ = parseLeast(flags.MinAllocatableResources)
	m.recoverRegistry()
	return m, nil
}

func masterInfo(id string, flags Flags) mesos.MasterInfo {
	port, version := uint32(flags.Port), Version
	pid := "master@" + net.JoinHostPort(flags.IP, strconv.Itoa(flags.Port))
	info := mesos.MasterInfo{
		ID: id, Port: &port, PID: &pid, Hostname: &flags.Hostname, Version: &version,
		Address: &mesos.Address{Hostname: &flags.Hostname, IP: &flags.IP, Port: int32(flags.Port)},
		// AGENT_UPDATE, AGENT_DRAINING and QUOTA_V2, which the Go types do not name.
		Capabilities: []mesos.MasterInfo_Capability{{Type: 1}, {Type: 2}, {Type: 3}},
	}
	if ip := net.ParseIP(flags.IP).To4(); ip != nil {
		// Mesos keeps the address in network order inside a host-order number.
		info.IP = binary.LittleEndian.Uint32(ip)
	}
	return info
}

// Start serves until Close or Kill. It returns at once; ctx does not bound the
// master's life, only its values are used.
func (m *Master) Start(ctx context.Context) error {
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.server = &http.Server{
		Handler:           m.withFaults(m.routes()),
		ConnContext:       m.faults.ConnContext,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
	}
	m.loop.start()
	m.loop.post(m.startTimers)
	go func() {
		defer close(m.serving)
		if err := m.server.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("the HTTP server ended", "error", err)
		}
	}()
	m.log.Info("mesos master listens", "url", m.URL(), "id", m.id, "registry", m.flags.Registry)
	return nil
}

// URL is the master's address, such as http://127.0.0.1:5050, or https with TLS.
func (m *Master) URL() string {
	if ssl.Enabled(m.flags.SSL) {
		return "https://" + m.Address()
	}
	return "http://" + m.Address()
}

// Address is the master's host and port.
func (m *Master) Address() string { return net.JoinHostPort(m.flags.IP, strconv.Itoa(m.flags.Port)) }

// Close ends the master: streams end as they do when a connection closes, and
// agents and frameworks keep what they have, to come back to the next master.
// It returns after everything of the master has ended.
func (m *Master) Close() error {
	m.end(func() error {
		m.loop.do(func() { m.ending = true; m.closeStreams() })
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := m.server.Shutdown(ctx); err != nil {
			return m.server.Close()
		}
		return nil
	})
	return m.closeErr
}

// Kill drops everything without goodbye, as SIGKILL would.
func (m *Master) Kill() {
	m.end(func() error {
		m.loop.stop()
		return m.server.Close()
	})
}

func (m *Master) end(stopServer func() error) {
	m.closing.Do(func() {
		m.faults.Close() // a frozen master could not end
		if m.server == nil {
			m.closeErr = m.listener.Close()
		} else {
			m.closeErr = stopServer()
			m.cancel()
			<-m.serving
			m.loop.stop()
		}
		m.registry.close()
	})
}

// closeStreams lets every stream end after what is queued.
func (m *Master) closeStreams() {
	for _, f := range m.frameworks {
		if f.stream != nil {
			f.stream.Close()
		}
	}
	for _, a := range m.agents {
		if a.stream != nil {
			a.stream.Close()
		}
	}
	for _, s := range m.subscribers {
		s.stream.Close()
	}
}
