package api

// Values of ServiceSpec.Type.
const (
	ServiceClusterIP   = "ClusterIP"
	ServiceNodePort    = "NodePort"
	ServiceNone        = "None"
	ServiceIntegration = "Integration"
)

// Labels of a service that direct its export to load balancers.
const (
	// LabelGroup lists load balancer groups, separated by commas.
	LabelGroup = "BCSGROUP"
	// LabelBalance is source, roundrobin or leastconn.
	LabelBalance = "BCSBALANCE"
	// LabelWeightPrefix is followed by a value of the selector; the label's value is a weight.
	LabelWeightPrefix = "BCS-WEIGHT-"
)

// Values of ServiceSpec.ExternalTrafficPolicy.
const (
	TrafficCluster = "Cluster"
	TrafficLocal   = "Local"
)

// MaxTopologyKeys limits ServiceSpec.TopologyKeys.
const MaxTopologyKeys = 16

// Service gives taskgroups with certain labels one name and ports. Both shapes
// of artifact, v4 and v1, decode into it; APIVersion tells which it was.
type Service struct {
	APIVersion string      `json:"apiVersion,omitempty"`
	Kind       Kind        `json:"kind"`
	Metadata   ObjectMeta  `json:"metadata"`
	Spec       ServiceSpec `json:"spec"`
}

// ServiceSpec selects the taskgroups and names the ports.
type ServiceSpec struct {
	// Selector: a taskgroup belongs to the service when its labels hold every
	// pair. An empty selector selects nothing.
	Selector map[string]string `json:"selector,omitempty"`
	// Type is ClusterIP (default), NodePort, None or Integration.
	Type string `json:"type,omitempty"`
	// ClusterIP are fixed addresses of the service.
	ClusterIP StringList    `json:"clusterIP,omitempty"`
	Ports     []ServicePort `json:"ports,omitempty"`
	// TopologyKeys prefer endpoints near the client; see the README.
	TopologyKeys []string `json:"topologyKeys,omitempty"`
	// ExternalTrafficPolicy is empty, Cluster or Local.
	ExternalTrafficPolicy string `json:"externalTrafficPolicy,omitempty"`
}

// ServicePort is a port of the service. In the v4 shape the endpoints' port is
// the one of the same name; in the v1 shape it is the one that TargetPort
// names or numbers.
type ServicePort struct {
	Name string `json:"name,omitempty"`
	// DomainName and Path are the virtual host of an http port.
	DomainName string `json:"domainName,omitempty"`
	Path       string `json:"path,omitempty"`
	// Protocol is tcp (default), udp, http or https, in lower case.
	Protocol string `json:"protocol,omitempty"`
	// ServicePort is the port that clients connect to; the v1 shape calls it port.
	ServicePort int        `json:"servicePort,omitempty" alias:"port"`
	TargetPort  TargetPort `json:"targetPort,omitzero"`
	NodePort    int        `json:"nodePort,omitempty"`
}

// TargetPort is a port by number or by name; neither when absent.
type TargetPort struct {
	Number int
	Name   string
}

// StringList is a list of texts that artifacts may write as one text, too.
type StringList []string

// GetKind returns KindService.
func (*Service) GetKind() Kind { return KindService }

// GetMeta returns the metadata.
func (s *Service) GetMeta() *ObjectMeta { return &s.Metadata }
