package kts46

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Call is one XML-RPC call.
type Call struct {
	Method string
	Params []any
}

// ReadCall reads a call up to the end of r. Only white space may follow the call. The caller bounds r, see MaxRequest.
func ReadCall(r io.Reader) (c Call, err error) {
	err = newReader(r).document("methodCall", func(d *reader) error {
		named := false
		return d.children(func(name string) error {
			switch {
			case name == "methodName" && !named:
				named = true
				c.Method, err = d.text()
				c.Method = strings.TrimSpace(c.Method)
				return err
			case name == "params" && named && c.Params == nil:
				c.Params, err = d.params()
				return err
			}
			return unexpected(name)
		})
	})
	if err == nil && c.Method == "" {
		err = errors.New("the call names no method")
	}
	return c, err
}

// ReadAnswer reads the answer to a call. A fault is the error *Fault.
func ReadAnswer(r io.Reader) (v any, err error) {
	answered := false
	err = newReader(r).document("methodResponse", func(d *reader) error {
		return d.children(func(name string) error {
			switch {
			case answered:
				return unexpected(name)
			case name == "params":
				answered = true
				all, err := d.params()
				if err == nil && len(all) != 1 {
					err = fmt.Errorf("an answer of %d values", len(all))
				}
				if err == nil {
					v = all[0]
				}
				return err
			case name == "fault":
				answered = true
				return d.fault()
			}
			return unexpected(name)
		})
	})
	if err == nil && !answered {
		err = errors.New("the answer is empty")
	}
	return v, err
}

// fault reads a fault and returns it, or the error of a malformed one.
func (d *reader) fault() error {
	var f any
	err := d.children(func(name string) (err error) {
		if name != "value" || f != nil {
			return unexpected(name)
		}
		f, err = d.value(0)
		return err
	})
	if err != nil {
		return err
	}
	s, _ := f.(Struct)
	code, _ := s.Get("faultCode").(int64)
	text, ok := s.Get("faultString").(string)
	if !ok {
		return errors.New("the fault says nothing")
	}
	return &Fault{code, text}
}

// reader reads XML-RPC's elements from a stream of tokens.
type reader struct {
	*xml.Decoder
	values int
}

// newReader returns a reader of XML in UTF-8, or in ISO-8859-1 if it says so, with one declaration of the encoding.
func newReader(r io.Reader) *reader {
	d := &reader{Decoder: xml.NewDecoder(r)}
	declared := false
	d.CharsetReader = func(charset string, in io.Reader) (io.Reader, error) {
		if declared { // encoding/xml accepts a declaration anywhere, and each may double the size of the rest
			return nil, errors.New("the encoding is declared twice")
		}
		declared = true
		switch strings.ToLower(charset) {
		case "us-ascii": // a part of UTF-8
			return in, nil
		case "iso-8859-1", "latin-1": // an option of Python's clients
			return latin1(in)
		}
		return nil, fmt.Errorf("the encoding %q is neither UTF-8 nor ISO-8859-1", charset)
	}
	return d
}

// latin1 converts ISO-8859-1, where a byte is the number of a character, to UTF-8.
func latin1(in io.Reader) (io.Reader, error) {
	all, err := io.ReadAll(in)
	var text strings.Builder
	for _, c := range all {
		text.WriteRune(rune(c))
	}
	return strings.NewReader(text.String()), err
}

func unexpected(name string) error { return fmt.Errorf("an element %q has no place here", name) }

// next returns the next start, end or text.
func (d *reader) next() (xml.Token, error) {
	for {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch t.(type) {
		case xml.Directive:
			return nil, errors.New("a document type definition is not allowed")
		case xml.ProcInst, xml.Comment:
			continue
		}
		return t, nil
	}
}

// byteOrderMark may stand before all else, as some clients on Windows write it.
const byteOrderMark = "\ufeff"

// document reads the one element of a document with read, and the white space around it.
func (d *reader) document(name string, read func(*reader) error) error {
	seen := false
	for {
		t, err := d.next()
		if err == io.EOF && seen {
			return nil
		}
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.CharData:
			if d.InputOffset() == int64(len(t)) {
				t = bytes.TrimPrefix(t, []byte(byteOrderMark))
			}
			if err := blank(t); err != nil {
				return err
			}
		case xml.StartElement:
			if seen || t.Name.Local != name {
				return unexpected(t.Name.Local)
			}
			seen = true
			if err := read(d); err != nil {
				return err
			}
		}
	}
}

func blank(text []byte) error {
	if s := strings.TrimSpace(string(text)); s != "" {
		return fmt.Errorf("the text %.20q has no place here", s)
	}
	return nil
}

// children calls read for each child of the open element and reads the element's end. read reads the child's end.
func (d *reader) children(read func(name string) error) error {
	for {
		t, err := d.next()
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.CharData:
			err = blank(t)
		case xml.StartElement:
			err = read(t.Name.Local)
		case xml.EndElement:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// text reads the text of the open element and its end.
func (d *reader) text() (string, error) {
	var all strings.Builder
	for {
		t, err := d.next()
		if err != nil {
			return "", err
		}
		switch t := t.(type) {
		case xml.CharData:
			all.Write(t)
		case xml.StartElement:
			return "", unexpected(t.Name.Local)
		case xml.EndElement:
			return all.String(), nil
		}
	}
}

// params reads a list of parameters. It never returns nil.
func (d *reader) params() ([]any, error) {
	all := []any{}
	err := d.children(func(name string) error {
		if name != "param" {
			return unexpected(name)
		}
		count := len(all)
		err := d.children(func(name string) error {
			if name != "value" || len(all) > count {
				return unexpected(name)
			}
			v, err := d.value(0)
			all = append(all, v)
			return err
		})
		if err == nil && len(all) == count {
			err = errors.New("a parameter has no value")
		}
		return err
	})
	return all, err
}

// value reads the content of a <value> and its end.
func (d *reader) value(depth int) (v any, err error) {
	if d.values++; depth > maxDepth || d.values > maxValues {
		return nil, errLimit
	}
	var text strings.Builder
	typed := false
	for {
		t, err := d.next()
		if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case xml.CharData:
			text.Write(t)
		case xml.StartElement:
			if typed {
				return nil, unexpected(t.Name.Local)
			}
			typed = true
			if v, err = d.typed(t.Name.Local, depth); err != nil {
				return nil, err
			}
		case xml.EndElement:
			if !typed {
				return text.String(), nil
			}
			return v, blank([]byte(text.String()))
		}
	}
}

// typed reads a value of a type whose element is open.
func (d *reader) typed(name string, depth int) (any, error) {
	switch name {
	case "array":
		return d.array(depth)
	case "struct":
		return d.structure(depth)
	}
	text, err := d.text()
	if err != nil {
		return nil, err
	}
	word := strings.TrimSpace(text)
	switch name {
	case "string":
		return text, nil
	case "dateTime.iso8601":
		return DateTime(word), nil
	case "int", "i4", "i8":
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%.20q is no whole number", word)
		}
		return n, nil
	case "boolean":
		if word != "0" && word != "1" {
			return nil, fmt.Errorf("%.20q is no truth value", word)
		}
		return word == "1", nil
	case "double":
		f, err := strconv.ParseFloat(word, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%.20q is no number", word)
		}
		return f, nil
	case "base64": // Python 3 encodes bytes so, as the content of a file
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(word), ""))
		if err != nil {
			return nil, fmt.Errorf("%.20q is no base64", word)
		}
		return string(data), nil
	case "nil":
		return nil, blank([]byte(text))
	}
	return nil, fmt.Errorf("the type %.20q is not known", name)
}

// array reads an array: data with any number of values.
func (d *reader) array(depth int) (any, error) {
	all, seen := []any{}, false
	err := d.children(func(name string) error {
		if name != "data" || seen {
			return unexpected(name)
		}
		seen = true
		return d.children(func(name string) error {
			if name != "value" {
				return unexpected(name)
			}
			v, err := d.value(depth + 1)
			all = append(all, v)
			return err
		})
	})
	return all, err
}

// structure reads a struct: members, each with one name and one value.
func (d *reader) structure(depth int) (any, error) {
	all := Struct{}
	err := d.children(func(name string) error {
		if name != "member" {
			return unexpected(name)
		}
		var m Member
		named, valued := false, false
		err := d.children(func(name string) (err error) {
			switch {
			case name == "name" && !named:
				named = true
				m.Name, err = d.text()
			case name == "value" && !valued:
				valued = true
				m.Value, err = d.value(depth + 1)
			default:
				err = unexpected(name)
			}
			return err
		})
		if err == nil && (!named || !valued) {
			err = errors.New("a member lacks its name or its value")
		}
		all = append(all, m)
		return err
	})
	return all, err
}
