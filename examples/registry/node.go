package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	interval = time.Second
	// deadAfter is how long a peer that nobody hears of counts as alive.
	deadAfter = 5 * interval
	maxPeers  = 1000
)

type options struct {
	Name, Bind, Port, DataDir string
	Join                      []string
	Expect                    int
}

// peer is a server as the others know it.
type peer struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Address string `json:"address"`
	// Beat grows with each second that the server lives; a higher one is news.
	Beat int64 `json:"beat"`
	// Left is set in the last thing that a server says.
	Left bool `json:"left,omitempty"`
}

// node is this server and what it knows of the others.
type node struct {
	opt    options
	client *http.Client

	mu   sync.Mutex
	self peer
	// peers are the others, by address: one that comes back has another id.
	peers map[string]known
}

type known struct {
	peer
	heard time.Time
}

func newNode(o options) (*node, error) {
	id, err := loadID(o.DataDir)
	if err != nil {
		return nil, err
	}
	return &node{
		opt:    o,
		client: &http.Client{Timeout: interval},
		// Beats begin with the time, so that a server that comes back is news.
		self:  peer{ID: id, Name: o.Name, Address: net.JoinHostPort(o.Bind, o.Port), Beat: time.Now().Unix()},
		peers: map[string]known{},
	}, nil
}

// loadID returns the id kept in dir, or makes one. Whoever is started again on
// the same volume is the same server.
func loadID(dir string) (string, error) {
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	fresh := hex.EncodeToString(raw[:])
	if dir == "" {
		return fresh, nil
	}
	file := filepath.Join(dir, "node-id")
	b, err := os.ReadFile(file)
	if err == nil && len(bytes.TrimSpace(b)) > 0 {
		return string(bytes.TrimSpace(b)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the id: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make -data-dir: %w", err)
	}
	if err := os.WriteFile(file+".new", []byte(fresh+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("keep the id: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return "", fmt.Errorf("keep the id: %w", err)
	}
	return fresh, nil
}

// alive returns this server and those heard of lately, by address.
func (n *node) alive() []peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := []peer{n.self}
	for _, k := range n.peers {
		if !k.Left && time.Since(k.heard) < deadAfter {
			out = append(out, k.peer)
		}
	}
	slices.SortFunc(out, func(a, b peer) int { return strings.Compare(a.Address, b.Address) })
	return out
}

// merge takes in what another server knows.
func (n *node) merge(list []peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range list {
		old, have := n.peers[p.Address]
		switch {
		case p.Address == n.self.Address:
		case have && p.Beat <= old.Beat:
		case !have && (len(n.peers) >= maxPeers || p.Left):
		default:
			if !have || old.Left {
				slog.Info("peer found", "address", p.Address, "name", p.Name)
			}
			if p.Left && !old.Left {
				slog.Info("peer left", "address", p.Address, "name", p.Name)
			}
			n.peers[p.Address] = known{p, time.Now()}
		}
	}
}

// gossip exchanges knowledge with every known and joined server, each second.
func (n *node) gossip(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		n.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.mu.Lock()
			n.self.Beat++
			n.mu.Unlock()
		}
	}
}

func (n *node) round(ctx context.Context) {
	var wg sync.WaitGroup
	for _, address := range n.targets() {
		wg.Go(func() { n.exchange(ctx, address) })
	}
	wg.Wait()
}

// targets are the joined servers and all known ones but this one.
func (n *node) targets() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Clone(n.opt.Join)
	for address, k := range n.peers {
		if !k.Left && time.Since(k.heard) < deadAfter {
			out = append(out, address)
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(a string) bool { return a == n.self.Address })
}

// exchange sends what is known to one server and takes in its answer. A server
// that does not answer is not there yet, or no more.
func (n *node) exchange(ctx context.Context, address string) {
	body, err := json.Marshal(n.alive())
	if err != nil {
		slog.Error("encode peers", "error", err)
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/gossip", bytes.NewReader(body))
	if err != nil {
		slog.Error("bad address of a peer", "address", address, "error", err)
		return
	}
	resp, err := n.client.Do(req)
	if err != nil {
		slog.Debug("peer does not answer", "address", address, "error", err)
		return
	}
	defer resp.Body.Close()
	if list, err := readPeers(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
		n.merge(list)
	}
}

// leave tells the others that this server goes, so that they need not wait.
func (n *node) leave(ctx context.Context) {
	n.mu.Lock()
	n.self.Left = true
	n.self.Beat++
	n.mu.Unlock()
	n.round(ctx)
}

func readPeers(r io.Reader) ([]peer, error) {
	var list []peer
	if err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&list); err != nil {
		return nil, fmt.Errorf("decode peers: %w", err)
	}
	return list, nil
}

func (n *node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		have := len(n.alive())
		if have < n.opt.Expect {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, "%d of %d servers\n", have, n.opt.Expect)
	})
	mux.HandleFunc("GET /peers", func(w http.ResponseWriter, _ *http.Request) { n.answer(w) })
	mux.HandleFunc("POST /gossip", func(w http.ResponseWriter, r *http.Request) {
		list, err := readPeers(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		n.merge(list)
		n.answer(w)
	})
	return mux
}

func (n *node) answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(n.alive()); err != nil {
		slog.Debug("answer", "error", err)
	}
}
