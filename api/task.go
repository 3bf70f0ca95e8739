package api

// Task returns the container's own part of a TaskSpec. Credentials that refer
// to a secret (ParseSecretRef) are passed on as they are: whoever holds the
// secrets replaces them.
func (k *Container) Task() *ContainerTask {
	t := &ContainerTask{
		Image:        k.Image,
		Args:         k.Args,
		WorkingDir:   k.WorkingDir,
		Hostname:     k.Hostname,
		Privileged:   k.Privileged,
		User:         k.User,
		Init:         k.Init,
		ReadOnlyRoot: k.ReadOnlyRoot,
		PidsLimit:    k.PidsLimit,
		Capabilities: k.Capabilities,
		Cpuset:       k.Cpuset,
		PullPolicy:   k.ImagePullPolicy,
		RegistryUser: k.ImagePullUser,
		RegistryPass: k.ImagePullPasswd,
	}
	if k.Command != "" {
		t.Command = []string{k.Command}
	}
	for _, p := range k.Parameters {
		t.Parameters = append(t.Parameters, TaskParameter(p))
	}
	for _, v := range k.Volumes {
		t.Volumes = append(t.Volumes, ContainerVolume{
			Name: v.Name, HostPath: v.Volume.HostPath, MountPath: v.Volume.MountPath, ReadOnly: v.Volume.ReadOnly,
			Propagation: v.Volume.Propagation,
		})
	}
	return t
}

// Task returns the process's own part of a TaskSpec.
func (p *Process) Task() *ProcessTask {
	t := &ProcessTask{
		ProcName:                p.ProcName,
		User:                    p.User,
		WorkPath:                p.WorkPath,
		PidFile:                 p.PidFile,
		StartCmd:                p.StartCmd,
		StartTimeoutSeconds:     p.StartTimeout,
		StartGracePeriodSeconds: p.StartGracePeriod,
		StopCmd:                 p.StopCmd,
		CheckCmd:                p.CheckCmd,
		RestartCmd:              p.RestartCmd,
		ReloadCmd:               p.ReloadCmd,
		KillCmd:                 p.KillCmd,
	}
	t.LogPath, t.PidsLimit = p.LogPath, p.PidsLimit
	t.NewPrivileges, t.Umask, t.Nice, t.OOMScoreAdj, t.Ulimits = p.NewPrivileges, p.Umask, p.Nice, p.OOMScoreAdj, p.Ulimits
	for _, u := range p.URIs {
		t.URIs = append(t.URIs, ProcessURI{Value: u.Value, User: u.User, Password: u.Pwd, OutputDir: u.OutputDir, PullPolicy: u.PullPolicy, Mode: u.Mode})
	}
	return t
}
