// Package api holds the artifacts that people write and the messages that the
// parts of Tandem exchange: their types, decoding from JSON and YAML, defaults,
// validation, and the expansion of variables. README.md describes the format
// for the people who write it.
//
// It is for everything above it: the CLI, the scheduler, the executor,
// discovery. It must never import anything of the project, never touch the
// machine beyond reading the files that it is told to read, and never become
// the drawer for types that only one room uses.
package api

// Kind names what an artifact declares. Artifacts may write it in any case.
type Kind string

// The kinds that Tandem knows.
const (
	KindApplication Kind = "application"
	KindProcess     Kind = "process"
	KindDeployment  Kind = "deployment"
	KindService     Kind = "service"
	KindEndpoint    Kind = "endpoint"
	KindConfigMap   Kind = "configmap"
	KindSecret      Kind = "secret"
)

// Kinds lists every kind in the order in which a set of artifacts is best
// applied: what others refer to comes first.
func Kinds() []Kind {
	return []Kind{KindConfigMap, KindSecret, KindService, KindEndpoint, KindApplication, KindProcess, KindDeployment}
}

// Versions of the artifact format.
const (
	// VersionV4 is the format of all kinds.
	VersionV4 = "v4"
	// VersionV1 is accepted for a service, where it announces the shape with
	// port and targetPort, and for an endpoint.
	VersionV1 = "v1"
)

// DefaultNamespace holds every object whose metadata names no namespace.
const DefaultNamespace = "defaultGroup"

// Object is one declared artifact: *Application (also for processes),
// *Deployment, *Service, *Endpoint, *ConfigMap or *Secret.
type Object interface {
	// GetKind returns the kind, in lower case.
	GetKind() Kind
	// GetMeta returns the object's metadata; it is never nil and may be changed.
	GetMeta() *ObjectMeta
}

// Ref identifies an object: no two objects have the same.
type Ref struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// RefOf returns what identifies o.
func RefOf(o Object) Ref {
	m := o.GetMeta()
	return Ref{Kind: o.GetKind(), Namespace: m.Namespace, Name: m.Name}
}

// String renders kind/namespace/name.
func (r Ref) String() string { return string(r.Kind) + "/" + r.Namespace + "/" + r.Name }
