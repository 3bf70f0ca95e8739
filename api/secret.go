package api

// Secret holds confidential values. Nothing of Datas may appear in logs,
// errors or arguments of commands.
type Secret struct {
	APIVersion string     `json:"apiVersion,omitempty"`
	Kind       Kind       `json:"kind"`
	Metadata   ObjectMeta `json:"metadata"`
	// Type is read and kept; it has no effect.
	Type  string                `json:"type,omitempty"`
	Datas map[string]SecretItem `json:"datas,omitempty"`
}

// SecretItem is one value in base64.
type SecretItem struct {
	Content string `json:"content,omitempty" secret:"true"`
}

// GetKind returns KindSecret.
func (*Secret) GetKind() Kind { return KindSecret }

// GetMeta returns the metadata.
func (s *Secret) GetMeta() *ObjectMeta { return &s.Metadata }

func (c *checker) secret(s *Secret) {
	for _, k := range sortedKeys(s.Datas) {
		c.dataKey("datas", k)
		c.base64(joinPath(joinPath("datas", k), "content"), s.Datas[k].Content)
	}
}
