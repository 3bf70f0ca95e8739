package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// engine is a Docker Engine behind a unix socket or a TCP address.
type engine struct {
	client *http.Client
	base   string
}

// connect reads DOCKER_HOST as the docker command does; nothing is sent yet.
func connect() (*engine, error) {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	scheme, address, ok := strings.Cut(host, "://")
	network := map[string]string{"unix": "unix", "tcp": "tcp", "http": "tcp"}[scheme]
	if !ok || network == "" {
		return nil, fmt.Errorf("DOCKER_HOST %q is not supported here; use unix:// or tcp://", host)
	}
	// Without a version in the path the engine speaks its own; what is asked for
	// here has been the same in all of them.
	return &engine{base: "http://engine", client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		},
	}}}, nil
}

// imageID returns the id of an image, or "" when there is none of that name.
func (e *engine) imageID(ctx context.Context, name string) (string, error) {
	var image struct{ ID string }
	status, err := e.call(ctx, http.MethodGet, "/images/"+name+"/json", nil, func(r io.Reader) error {
		return json.NewDecoder(r).Decode(&image)
	})
	if status == http.StatusNotFound {
		return "", nil
	}
	return image.ID, err
}

// load gives the engine an archive. The engine answers 200 before it has read
// it; what went wrong after that is in the stream.
func (e *engine) load(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("open the image: %w", err)
	}
	defer f.Close()
	_, err = e.call(ctx, http.MethodPost, "/images/load?quiet=1", f, func(r io.Reader) error {
		for d := json.NewDecoder(r); ; {
			var line struct {
				Error string `json:"error"`
			}
			switch err := d.Decode(&line); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("read the Docker Engine's answer: %w", err)
			case line.Error != "":
				return fmt.Errorf("load %s: %s", archive, line.Error)
			}
		}
	})
	return err
}

// remove deletes an image; that there is none is no error.
func (e *engine) remove(ctx context.Context, name string) error {
	status, err := e.call(ctx, http.MethodDelete, "/images/"+name, nil, nil)
	if status == http.StatusNotFound {
		return nil
	}
	return err
}

func (e *engine) call(ctx context.Context, method, path string, body io.Reader, read func(io.Reader) error) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, body)
	if err != nil {
		return 0, fmt.Errorf("ask the Docker Engine: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("the Docker Engine does not answer: %w", err)
	}
	defer resp.Body.Close()
	answer := io.LimitReader(resp.Body, 1<<20)
	if resp.StatusCode >= 300 {
		var problem struct{ Message string }
		if json.NewDecoder(answer).Decode(&problem) != nil || problem.Message == "" {
			problem.Message = resp.Status
		}
		return resp.StatusCode, fmt.Errorf("the Docker Engine refuses: %s", problem.Message)
	}
	if read == nil {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, read(answer)
}
