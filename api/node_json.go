package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
)

// syntaxError is a fault that ends the reading of a source.
type syntaxError struct {
	line, col int
	msg       string
}

func (e *syntaxError) Error() string {
	return FieldError{Line: e.line, Column: e.col, Message: e.msg}.Error()
}

// jsonParser turns the JSON documents of a source into nodes.
type jsonParser struct {
	dec   *json.Decoder
	src   []byte
	lines []int
	nodes int
}

// parseJSON reads all documents of a source: values one after the other. With
// an error it returns those before the fault.
func parseJSON(src []byte) ([]*node, *syntaxError) {
	p := &jsonParser{src: src, dec: json.NewDecoder(bytes.NewReader(src)), lines: lineStarts(src)}
	p.dec.UseNumber()
	var docs []*node
	for {
		tok, err := p.dec.Token()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return docs, p.fault(err)
		}
		if len(docs) == MaxDocuments {
			return docs, p.limit("more than %d documents in one source; split it", MaxDocuments)
		}
		n, serr := p.value(tok, 0)
		if serr != nil {
			return docs, serr
		}
		docs = append(docs, n)
	}
}

func (p *jsonParser) value(tok json.Token, depth int) (*node, *syntaxError) {
	n := &node{}
	n.line, n.col = p.tokenStart(tok)
	if p.nodes++; p.nodes > maxNodes {
		return nil, p.limit("more than %d values in one source; split it", maxNodes)
	}
	switch v := tok.(type) {
	case nil:
	case bool:
		n.kind, n.text = nodeBool, strconv.FormatBool(v)
	case json.Number:
		n.kind, n.text = nodeNumber, v.String()
	case string:
		n.kind, n.text = nodeString, v
	case json.Delim:
		if depth >= MaxDepth {
			return nil, p.limit("nested more than %d deep", MaxDepth)
		}
		if v == '[' {
			return n, p.list(n, depth)
		}
		return n, p.object(n, depth)
	}
	return n, nil
}

func (p *jsonParser) list(n *node, depth int) *syntaxError {
	n.kind = nodeList
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return p.fault(err)
		}
		item, serr := p.value(tok, depth+1)
		if serr != nil {
			return serr
		}
		n.items = append(n.items, item)
	}
	return p.end()
}

func (p *jsonParser) object(n *node, depth int) *syntaxError {
	n.kind = nodeMap
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return p.fault(err)
		}
		name, ok := tok.(string)
		if !ok {
			return p.limit("the key of an object must be a text")
		}
		key := nodeKey{name: name}
		key.line, key.col = p.tokenStart(tok)
		if tok, err = p.dec.Token(); err != nil {
			return p.fault(err)
		}
		item, serr := p.value(tok, depth+1)
		if serr != nil {
			return serr
		}
		n.keys = append(n.keys, key)
		n.items = append(n.items, item)
	}
	return p.end()
}

func (p *jsonParser) end() *syntaxError {
	if _, err := p.dec.Token(); err != nil {
		return p.fault(err)
	}
	return nil
}

// tokenStart finds where the token that was just read begins. The decoder
// knows only where it ends; for a string, whose source may hold escapes, the
// opening quote is the last one that is not part of the string.
func (p *jsonParser) tokenStart(tok json.Token) (line, col int) {
	end := int(p.dec.InputOffset())
	start := end - 1
	switch v := tok.(type) {
	case string:
		start = p.openingQuote(end)
	case json.Number:
		start = end - len(v)
	case bool, nil:
		for start > 0 && p.src[start-1] >= 'a' && p.src[start-1] <= 'z' {
			start--
		}
	}
	return p.position(start)
}

func (p *jsonParser) openingQuote(end int) int {
	for i := end - 2; i >= 0; i-- {
		if p.src[i] != '"' {
			continue
		}
		backslashes := 0
		for j := i - 1; j >= 0 && p.src[j] == '\\'; j-- {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
	}
	return 0
}

func (p *jsonParser) position(offset int) (line, col int) {
	return positionOf(p.src, p.lines, offset)
}

func (p *jsonParser) limit(format string, args ...any) *syntaxError {
	e := &syntaxError{msg: fmt.Sprintf(format, args...)}
	e.line, e.col = p.position(int(p.dec.InputOffset()))
	return e
}

func (p *jsonParser) fault(err error) *syntaxError {
	offset := int(p.dec.InputOffset())
	e := &syntaxError{}
	var se *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		offset = len(p.src)
		e.msg = "not valid JSON: the source ends in the middle of a document; is a closing brace missing?"
	case errors.As(err, &se):
		offset = p.faultOffset(se, offset)
		e.msg = "not valid JSON: " + se.Error() + p.hint(offset)
	default:
		e.msg = "not valid JSON: " + err.Error()
	}
	e.line, e.col = p.position(offset)
	return e
}

// faultOffset places a syntax error. Errors about what follows a token carry no
// usable offset of their own: they are at the next character that is not space.
func (p *jsonParser) faultOffset(se *json.SyntaxError, read int) int {
	if int(se.Offset) > read {
		return int(se.Offset) - 1
	}
	for read < len(p.src) && (p.src[read] == ' ' || p.src[read] == '\t' || p.src[read] == '\n' || p.src[read] == '\r') {
		read++
	}
	return read
}

// hint names the most common slips.
func (p *jsonParser) hint(offset int) string {
	before := bytes.TrimRight(p.src[:min(offset, len(p.src))], " \t\r\n")
	rest := p.src[min(offset, len(p.src)):]
	switch {
	case len(rest) > 0 && (rest[0] == '}' || rest[0] == ']') && bytes.HasSuffix(before, []byte(",")):
		return "; remove the comma before it"
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")), bytes.HasPrefix(rest, []byte("#")):
		return "; JSON has no comments"
	case len(rest) > 0 && rest[0] == '"':
		return "; is a comma missing before it?"
	case len(rest) > 0 && rest[0] == '\'':
		return "; texts are written in double quotes"
	}
	return ""
}

func lineStarts(src []byte) []int {
	starts := []int{0}
	for i, c := range src {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// positionOf turns an offset into line and column, both from 1; a column counts
// bytes, because counting characters would take quadratic time on one long line.
func positionOf(src []byte, lines []int, offset int) (line, col int) {
	offset = max(0, min(offset, len(src)))
	line = sort.SearchInts(lines, offset+1)
	return line, offset - lines[line-1] + 1
}
