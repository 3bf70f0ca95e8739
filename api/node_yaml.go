package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlParser turns the YAML documents of a source into nodes. It resolves
// aliases itself and counts each use, so that a few lines of aliases to aliases
// cannot become gigabytes.
type yamlParser struct {
	nodes int
	bytes int
	// open holds the anchors being expanded, to see one that contains itself.
	open map[*yaml.Node]bool
}

// parseYAML reads all documents of a source; empty ones are left out. With an
// error it returns those before the fault.
func parseYAML(src []byte) (docs []*node, serr *syntaxError) {
	// The parser is not ours and reads what anyone wrote.
	defer func() {
		if r := recover(); r != nil {
			serr = &syntaxError{line: 1, col: 1, msg: "not valid YAML: the parser gave up on it"}
		}
	}()
	if e := checkYAMLSize(src); e != nil {
		return nil, e
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	p := &yamlParser{open: map[*yaml.Node]bool{}}
	for {
		var y yaml.Node
		err := dec.Decode(&y)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return docs, yamlFault(err)
		}
		n, e := p.value(&y, 0)
		if e != nil {
			return docs, e
		}
		if n == nil || n.kind == nodeNull {
			continue
		}
		if len(docs) == MaxDocuments {
			return docs, yamlLimit(&y, "more than %d documents in one source; split it", MaxDocuments)
		}
		docs = append(docs, n)
	}
}

// maxYAMLDocument limits the source of one document: the parser makes a hundred
// bytes and more of each scalar before any other limit applies.
const maxYAMLDocument = 2 * MaxDocumentBytes

func checkYAMLSize(src []byte) *syntaxError {
	line, start, size := 1, 1, 0
	for l := range bytes.Lines(src) {
		if bytes.HasPrefix(l, []byte("---")) {
			start, size = line, 0
		}
		if size += len(l); size > maxYAMLDocument {
			return &syntaxError{line: start, col: 1, msg: fmt.Sprintf("the document is longer than %d MiB; split it", maxYAMLDocument>>20)}
		}
		line++
	}
	return nil
}

func (p *yamlParser) value(y *yaml.Node, depth int) (*node, *syntaxError) {
	if p.nodes++; p.nodes > maxNodes {
		return nil, yamlLimit(y, "more than %d values in one source, aliases counted as often as they are used; split it", maxNodes)
	}
	if p.bytes += len(y.Value); p.bytes > 2*MaxSourceBytes {
		return nil, yamlLimit(y, "aliases expand to more than %d MiB", 2*MaxSourceBytes>>20)
	}
	if depth > MaxDepth {
		return nil, yamlLimit(y, "nested more than %d deep", MaxDepth)
	}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 0 {
			return nil, nil
		}
		return p.value(y.Content[0], depth)
	case yaml.AliasNode:
		if p.open[y.Alias] {
			return nil, yamlLimit(y, "alias %q contains itself", clip(y.Value))
		}
		p.open[y.Alias] = true
		defer delete(p.open, y.Alias)
		return p.value(y.Alias, depth+1)
	case yaml.SequenceNode:
		n := &node{kind: nodeList, line: y.Line, col: y.Column}
		for _, c := range y.Content {
			item, err := p.value(c, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		return n, nil
	case yaml.MappingNode:
		return p.mapping(y, depth)
	case yaml.ScalarNode:
		return p.scalar(y)
	default:
		return &node{line: 1, col: 1}, nil
	}
}

func (p *yamlParser) mapping(y *yaml.Node, depth int) (*node, *syntaxError) {
	n := &node{kind: nodeMap, line: y.Line, col: y.Column}
	var merged []*node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k := y.Content[i]
		v, err := p.value(y.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge" {
			merged = append(merged, v)
			continue
		}
		for k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			return nil, yamlLimit(k, "a key must be a text, not %s", "a list or object")
		}
		n.keys = append(n.keys, nodeKey{name: k.Value, line: y.Content[i].Line, col: y.Content[i].Column})
		n.items = append(n.items, v)
	}
	for _, m := range merged {
		if err := p.merge(y, n, m); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// merge puts the keys of "<<" in front, so that the mapping's own count, being
// later; it drops those that the mapping has itself, which is no mistake.
func (p *yamlParser) merge(y *yaml.Node, n, from *node) *syntaxError {
	sources := []*node{from}
	if from.kind == nodeList {
		sources = from.items
	}
	for _, s := range sources {
		if s.kind != nodeMap {
			return yamlLimit(y, "the merge key << takes an object or a list of objects, not %s", s.kind)
		}
		own := make(map[string]bool, len(n.keys))
		for _, k := range n.keys {
			own[k.name] = true
		}
		for i, k := range s.keys {
			if !own[k.name] {
				n.keys = append(n.keys, k)
				n.items = append(n.items, s.items[i])
			}
		}
		if p.nodes += len(s.keys); p.nodes > maxNodes {
			return yamlLimit(y, "more than %d values in one source, aliases counted as often as they are used; split it", maxNodes)
		}
	}
	return nil
}

func (p *yamlParser) scalar(y *yaml.Node) (*node, *syntaxError) {
	n := &node{line: y.Line, col: y.Column, text: y.Value}
	switch tag := y.ShortTag(); tag {
	case "!!null":
		n.text = ""
	case "!!bool":
		n.kind, n.text = nodeBool, strings.ToLower(y.Value)
		if n.text != "true" && n.text != "false" {
			return nil, yamlLimit(y, "%q is not true or false", clip(y.Value))
		}
	case "!!int", "!!float":
		n.kind = nodeNumber
		if isJSONNumber(y.Value) {
			return n, nil
		}
		text, ok := yamlNumber(y, tag)
		if !ok {
			return nil, yamlLimit(y, "%q is not a number that JSON has; put it in quotes if it is meant as text", clip(y.Value))
		}
		n.text = text
	case "!!str", "!!timestamp":
		n.kind = nodeString
	default:
		return nil, yamlLimit(y, "the tag %s is not supported; write the plain value", clip(tag))
	}
	return n, nil
}

// yamlNumber turns the spellings that only YAML has, such as 0x1F and +1, into JSON's.
func yamlNumber(y *yaml.Node, tag string) (string, bool) {
	if tag == "!!int" {
		var i int64
		if y.Decode(&i) == nil {
			return strconv.FormatInt(i, 10), true
		}
		var u uint64
		if y.Decode(&u) == nil {
			return strconv.FormatUint(u, 10), true
		}
	}
	var f float64
	if y.Decode(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return "", false
	}
	b, err := json.Marshal(f)
	return string(b), err == nil
}

func yamlLimit(y *yaml.Node, format string, args ...any) *syntaxError {
	return &syntaxError{line: y.Line, col: y.Column, msg: fmt.Sprintf(format, args...)}
}

// yamlFault takes the line out of the parser's message; it gives no column.
func yamlFault(err error) *syntaxError {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	e := &syntaxError{}
	if number, rest, ok := strings.Cut(strings.TrimPrefix(msg, "line "), ": "); ok && strings.HasPrefix(msg, "line ") {
		if line, err := strconv.Atoi(number); err == nil {
			e.line, msg = line, rest
		}
	}
	if strings.Contains(msg, "cannot start any token") && strings.Contains(msg, "\\t") || strings.Contains(msg, "found a tab character") {
		msg += "; indent with spaces, not tabs"
	}
	e.msg = "not valid YAML: " + msg
	return e
}
