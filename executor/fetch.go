package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"tandem/api"
)

// What a value of a configmap that is fetched may be and take. A variable has
// the kernel's limit for one string of the environment, see execve(2).
const (
	sourceLimit     = 1 << 20
	sourceEnvLimit  = 128<<10 - 1
	sourcePatience  = 30 * time.Second
	sourceTries     = 3
	sourceRedirects = 5
)

// fetchSources fills in the values of s that are to be fetched. Each address is
// asked once, however many values come from it.
func fetchSources(ctx context.Context, s *api.TaskSpec, progress func(string)) error {
	f := &sourceFetcher{got: map[api.TaskSource][]byte{}, pause: time.Second, progress: progress}
	defer f.close()
	return f.fill(ctx, s)
}

func (f *sourceFetcher) fill(ctx context.Context, s *api.TaskSpec) error {
	for i := range s.Env {
		v := &s.Env[i]
		if v.Source == nil {
			continue
		}
		b, err := f.fetch(ctx, *v.Source)
		switch {
		case err != nil:
			return fmt.Errorf("variable %s: %w", v.Name, err)
		case len(b) > sourceEnvLimit:
			return fmt.Errorf("variable %s: %s has %d bytes, a variable at most %d; take it as a file", v.Name, place(v.Source.URL), len(b), sourceEnvLimit)
		case slices.Contains(b, 0):
			return fmt.Errorf("variable %s: %s holds a zero byte, which no variable can; take it as a file", v.Name, place(v.Source.URL))
		}
		v.Value, v.Literal, v.Source = string(b), true, nil
	}
	for i := range s.Files {
		v := &s.Files[i]
		if v.Source == nil {
			continue
		}
		b, err := f.fetch(ctx, *v.Source)
		if err != nil {
			return fmt.Errorf("file %s: %w", v.Path, err)
		}
		v.Content, v.Source = b, nil
	}
	return nil
}

type sourceFetcher struct {
	got      map[api.TaskSource][]byte
	client   *http.Client
	pause    time.Duration
	progress func(string)
}

func (f *sourceFetcher) close() {
	if f.client != nil {
		f.client.CloseIdleConnections()
	}
}

func (f *sourceFetcher) fetch(ctx context.Context, src api.TaskSource) ([]byte, error) {
	if b, ok := f.got[src]; ok {
		return b, nil
	}
	if f.client == nil {
		// Not the default transport: the agent's proxy settings are not the task's.
		f.client = &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: sourcePatience}, CheckRedirect: checkRedirect}
	}
	f.progress("fetching " + place(src.URL))
	ctx, cancel := context.WithTimeout(ctx, sourcePatience)
	defer cancel()
	for try := 1; ; try++ {
		b, again, err := f.try(ctx, src)
		if err == nil {
			f.got[src] = b
			return b, nil
		}
		if !again || try == sourceTries || ctx.Err() != nil {
			return nil, fmt.Errorf("%s cannot be fetched: %w; check the configmap's address, remoteUser and remotePasswd", place(src.URL), err)
		}
		select {
		case <-time.After(f.pause << (try - 1)):
		case <-ctx.Done():
		}
	}
}

// try asks once; again tells whether another try may help.
func (f *sourceFetcher) try(ctx context.Context, src api.TaskSource) (content []byte, again bool, err error) {
	u, err := url.Parse(src.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, false, errors.New("is no address of http or https without user and password")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, false, errors.New("is no address that can be asked")
	}
	if src.User != "" || src.Password != "" {
		req.SetBasicAuth(src.User, src.Password)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // it repeats the address, with all that is in it
		}
		if strings.Contains(err.Error(), "Location header") {
			// So does this one, which has no type.
			return nil, false, errors.New("the server redirects to what is no address")
		}
		return nil, !errors.Is(err, errDowngrade), err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, resp.StatusCode >= 500, fmt.Errorf("the server answers %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, sourceLimit+1))
	if err != nil {
		return nil, true, err
	}
	if len(b) > sourceLimit {
		return nil, false, fmt.Errorf("it is larger than %d bytes, the most that a configmap's value may have", sourceLimit)
	}
	return b, false, nil
}

var errDowngrade = errors.New("the server redirects from https to http, which is not followed")

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > sourceRedirects {
		return fmt.Errorf("more than %d redirections", sourceRedirects)
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return errDowngrade
	}
	return nil
}

// place is an address without what may be confidential in it.
func place(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return strings.TrimSuffix(u.String(), "?")
}
