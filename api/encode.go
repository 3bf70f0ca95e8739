package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// EncodeJSON returns any value of this package as indented JSON with a final
// newline. For a stored document pass its Raw: the result is what was applied.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	// Commands are full of < and &; nobody puts an artifact into a web page.
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return out.Bytes(), nil
}

// EncodeYAML is EncodeJSON in YAML; keys keep their order.
func EncodeYAML(v any) ([]byte, error) {
	j, err := EncodeJSON(v)
	if err != nil {
		return nil, err
	}
	docs, serr := parseJSON(j)
	if serr != nil {
		return nil, fmt.Errorf("encode YAML: %w", serr)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	for _, d := range docs {
		if err := e.Encode(yamlNode(d)); err != nil {
			return nil, fmt.Errorf("encode YAML: %w", err)
		}
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return b.Bytes(), nil
}

// EncodeList writes documents as one: a single one as it is, several as an
// object of kind List in JSON, and as --- separated documents in YAML. Decode
// reads both.
func EncodeList(w io.Writer, raws []json.RawMessage, format Format) error {
	var out []byte
	var err error
	switch {
	case format == FormatYAML:
		for i, raw := range raws {
			doc, err := EncodeYAML(raw)
			if err != nil {
				return err
			}
			if i > 0 {
				out = append(out, "---\n"...)
			}
			out = append(out, doc...)
		}
	case len(raws) == 1:
		out, err = EncodeJSON(raws[0])
	default:
		if raws == nil {
			raws = []json.RawMessage{}
		}
		out, err = EncodeJSON(struct {
			Kind  string            `json:"kind"`
			Items []json.RawMessage `json:"items"`
		}{"List", raws})
	}
	if err != nil {
		return err
	}
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func yamlNode(n *node) *yaml.Node {
	switch n.kind {
	case nodeMap:
		y := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for i, k := range n.keys {
			y.Content = append(y.Content, yamlText(k.name), yamlNode(n.items[i]))
		}
		return y
	case nodeList:
		y := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range n.items {
			y.Content = append(y.Content, yamlNode(item))
		}
		return y
	case nodeString:
		return yamlText(n.text)
	case nodeBool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: n.text}
	case nodeNumber:
		tag := "!!int"
		if strings.ContainsAny(n.text, ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: n.text}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
}

// oldBooleans are texts that older YAML readers take for true or false.
var oldBooleans = []string{"y", "n", "yes", "no", "on", "off"}

func yamlText(s string) *yaml.Node {
	y := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	switch {
	case slices.Contains(oldBooleans, strings.ToLower(s)), strings.ContainsFunc(s, needsQuotes), s == "<<":
		y.Style = yaml.DoubleQuotedStyle
	case strings.Contains(s, "\n") && !strings.Contains(s, " \n") && s[0] != ' ' && s[0] != '\n':
		y.Style = yaml.LiteralStyle
	}
	return y
}

// needsQuotes is true for characters that only a quoted text keeps as they are.
func needsQuotes(r rune) bool {
	return r != '\n' && (r < ' ' || r == 0x7f || r == 0x85 || r == 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff)
}
