package api

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Limits of what the decoder takes in. They bound memory whatever the input,
// aliases of YAML included, which count as often as they are used.
const (
	// MaxSourceBytes limits one file or stream.
	MaxSourceBytes = 16 << 20
	// MaxDocumentBytes limits one document in its JSON form; the store of a
	// cluster takes no larger values.
	MaxDocumentBytes = 1 << 20
	// MaxDepth limits the nesting of one document.
	MaxDepth = 64
	// MaxDocuments limits the documents of one source.
	MaxDocuments = 10000

	maxNodes = 1 << 20
)

type nodeKind uint8

const (
	nodeNull nodeKind = iota
	nodeBool
	nodeNumber
	nodeString
	nodeList
	nodeMap
)

// String names the kind for people.
func (k nodeKind) String() string {
	return [...]string{"null", "true or false", "a number", "a text", "a list", "an object"}[k]
}

// node is one value of a document, with its place in the source. JSON and YAML
// both become nodes, so that everything above has one kind of input.
type node struct {
	kind nodeKind
	// text is the string, the number's JSON literal, or true and false.
	text      string
	keys      []nodeKey
	items     []*node
	line, col int
}

type nodeKey struct {
	name      string
	line, col int
}

// duplicate is a key that occurred twice in one object; the last one counts.
type duplicate struct {
	path string
	key  nodeKey
	// first is the line of the earlier one.
	first int
}

// find returns the value of the key that equals name, and failing that of the
// one that equals it but for the case of letters.
func (n *node) find(name string) *node {
	if n == nil || n.kind != nodeMap {
		return nil
	}
	var loose *node
	for i, k := range n.keys {
		if k.name == name {
			return n.items[i]
		}
		if strings.EqualFold(k.name, name) {
			loose = n.items[i]
		}
	}
	return loose
}

// at follows a path as joinPath writes it and returns the deepest value on the way.
func (n *node) at(path string) *node {
	for path != "" && n != nil {
		var next *node
		switch {
		case strings.HasPrefix(path, `["`):
			quoted, err := strconv.QuotedPrefix(path[1:])
			if err != nil {
				return n
			}
			key, err := strconv.Unquote(quoted)
			if err != nil {
				return n
			}
			path = strings.TrimPrefix(path[1+len(quoted):], "]")
			next = n.find(key)
		case path[0] == '[':
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return n
			}
			i, err := strconv.Atoi(path[1:end])
			path = path[end+1:]
			if err == nil && n.kind == nodeList && i >= 0 && i < len(n.items) {
				next = n.items[i]
			}
		default:
			path = strings.TrimPrefix(path, ".")
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			next = n.find(path[:end])
			path = path[end:]
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// joinPath appends a key to a path; a key that is not a plain word is quoted.
func joinPath(path, key string) string {
	plain := key != ""
	for _, c := range key {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			plain = false
			break
		}
	}
	switch {
	case !plain:
		return path + "[" + strconv.Quote(clip(key)) + "]"
	case path == "":
		return key
	default:
		return path + "." + clip(key)
	}
}

func indexPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// clip shortens what a message shows of a value.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// dropDuplicates keeps the last of the keys of an object that are the same, in
// all objects below n. Keys that differ in case are left for the mapper: they
// are one key where it names a field, and two where it is data, such as a label.
func (n *node) dropDuplicates(path string, report func(duplicate)) {
	switch n.kind {
	case nodeList:
		for i, item := range n.items {
			item.dropDuplicates(indexPath(path, i), report)
		}
	case nodeMap:
		last := make(map[string]int, len(n.keys))
		for i, k := range n.keys {
			last[k.name] = i
		}
		if len(last) < len(n.keys) {
			n.keepLast(path, last, report)
		}
		for i, k := range n.keys {
			n.items[i].dropDuplicates(joinPath(path, k.name), report)
		}
	default:
	}
}

func (n *node) keepLast(path string, last map[string]int, report func(duplicate)) {
	var keys []nodeKey
	var items []*node
	for i, k := range n.keys {
		if j := last[k.name]; j != i {
			report(duplicate{path: joinPath(path, k.name), key: n.keys[j], first: k.line})
			continue
		}
		keys = append(keys, k)
		items = append(items, n.items[i])
	}
	n.keys, n.items = keys, items
}

// appendJSON writes n as compact JSON, keys in the order in which they were written.
func (n *node) appendJSON(b *bytes.Buffer) {
	switch n.kind {
	case nodeBool, nodeNumber:
		b.WriteString(n.text)
	case nodeString:
		appendString(b, n.text)
	case nodeList:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.appendJSON(b)
		}
		b.WriteByte(']')
	case nodeMap:
		b.WriteByte('{')
		for i, k := range n.keys {
			if i > 0 {
				b.WriteByte(',')
			}
			appendString(b, k.name)
			b.WriteByte(':')
			n.items[i].appendJSON(b)
		}
		b.WriteByte('}')
	default:
		b.WriteString("null")
	}
}

// appendString writes s as a JSON string without escaping <, > and &, which
// commands are full of.
func appendString(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	// A string always encodes.
	_ = e.Encode(s)
	b.Truncate(b.Len() - 1)
}
