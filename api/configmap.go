package api

// Values of ConfigMapItem.Type.
const (
	ConfigFile  = "file"
	ConfigHTTP  = "http"
	ConfigHTTPS = "https"
)

// ConfigMap holds configuration that tasks take as variables or files.
type ConfigMap struct {
	APIVersion string                   `json:"apiVersion,omitempty"`
	Kind       Kind                     `json:"kind"`
	Metadata   ObjectMeta               `json:"metadata"`
	Datas      map[string]ConfigMapItem `json:"datas,omitempty"`
}

// ConfigMapItem is one value, or where to get it.
type ConfigMapItem struct {
	// Type is file (default), http or https.
	Type string `json:"type,omitempty"`
	// Content is base64 for file, otherwise an address.
	Content      string `json:"content,omitempty"`
	RemoteUser   string `json:"remoteUser,omitempty"`
	RemotePasswd string `json:"remotePasswd,omitempty" secret:"true"`
}

// GetKind returns KindConfigMap.
func (*ConfigMap) GetKind() Kind { return KindConfigMap }

// GetMeta returns the metadata.
func (c *ConfigMap) GetMeta() *ObjectMeta { return &c.Metadata }
