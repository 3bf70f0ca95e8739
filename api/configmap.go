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

func (c *ConfigMap) setDefaults() {
	for k, item := range c.Datas {
		if item.Type == "" {
			item.Type = ConfigFile
			c.Datas[k] = item
		}
	}
}

func (c *checker) dataKey(path, key string) {
	if !isDataKey(key) {
		c.fail(joinPath(path, key), nil, "the key must be letters, digits, '-', '_' and '.', at most 253")
	}
}

func (c *checker) configMap(m *ConfigMap) {
	for _, k := range sortedKeys(m.Datas) {
		item := m.Datas[k]
		at := joinPath("datas", k)
		c.dataKey("datas", k)
		switch item.Type {
		case ConfigFile:
			c.base64(joinPath(at, "content"), item.Content)
		case ConfigHTTP, ConfigHTTPS:
			c.address(joinPath(at, "content"), item.Content, item.Type)
		case "ftp", "ftps":
			c.fail(joinPath(at, "type"), item.Type, "is not supported; offer the file by http or https")
		default:
			c.oneOf(joinPath(at, "type"), item.Type, ConfigFile, ConfigHTTP, ConfigHTTPS)
		}
	}
}
