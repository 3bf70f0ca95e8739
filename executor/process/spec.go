package process

import (
	"strconv"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/processdaemon/protocol"
)

// specOf is what the daemon needs to know of a task.
func specOf(t *executor.Task, digests []string) *protocol.Spec {
	p := t.Spec.Process
	s := &protocol.Spec{
		ID: t.ID, Owner: t.Owner, Leased: true, Name: t.Spec.Name, User: p.User,
		WorkPath: p.WorkPath, PidFile: p.PidFile, ProcName: p.ProcName, StartCmd: p.StartCmd, StopCmd: p.StopCmd,
		KillCmd: p.KillCmd, ReloadCmd: p.ReloadCmd,
		LogPath: p.LogPath, NewPrivileges: p.NewPrivileges, Umask: p.Umask, Nice: p.Nice, OOMScoreAdj: p.OOMScoreAdj,
		StartTimeout: p.StartTimeout(), StartGrace: time.Duration(p.StartGracePeriodSeconds) * time.Second,
		Env: t.Env, Sandbox: t.Sandbox, URIs: urisOf(p),
		Limits: limitsOf(t.Spec.Requests, t.Spec.Limits),
	}
	s.Limits.Pids = p.PidsLimit
	for _, text := range p.Ulimits {
		// One that makes no sense is refused by the daemon, with its name.
		u, err := api.ParseUlimit(text)
		if err != nil {
			u.Name = text
		}
		s.Rlimits = append(s.Rlimits, protocol.Rlimit{Name: u.Name, Soft: u.Soft, Hard: u.Hard})
	}
	if t.Netns != nil {
		s.NetNS, s.NetNSInode = t.Netns.Netns, t.Netns.NetnsID
	}
	for i := range s.URIs {
		if i < len(digests) {
			s.URIs[i].Digest = digests[i]
		}
	}
	return s
}

func urisOf(p *api.ProcessTask) []protocol.URI {
	out := make([]protocol.URI, 0, len(p.URIs))
	for _, u := range p.URIs {
		dir := u.OutputDir
		if dir == "" {
			dir = p.WorkPath
		}
		// It was validated; what cannot be read is the daemon's default.
		mode, _ := strconv.ParseUint(u.Mode, 8, 32)
		out = append(out, protocol.URI{Value: u.Value, User: u.User, Password: u.Password, OutputDir: dir, PullPolicy: u.PullPolicy, Mode: uint32(mode)})
	}
	return out
}

func filesOf(files []api.TaskFile) []protocol.File {
	out := make([]protocol.File, len(files))
	for i, f := range files {
		out[i] = protocol.File{Path: f.Path, Content: f.Content, Mode: f.Mode, User: f.User, Secret: f.Secret}
	}
	return out
}
