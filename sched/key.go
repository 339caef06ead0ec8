package sched

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// JobKey says how the key of a job is found: in its name, or in a field of its workload. The zero JobKey finds none.
type JobKey struct {
	text   string   // text as the operator wrote it
	before string   // the key is the part of the name before this separator
	path   []string // path of the member of the workload, if the key is one
}

// Bounds of keys. Finding a key takes time under a shard's lock, and each key takes memory.
const (
	// maxKey cuts longer keys: jobs whose keys have their first bytes in common share a key.
	maxKey = 128
	// maxKeyScan is how much of a workload is scanned for a field. A field that ends later counts as missing.
	maxKeyScan = 64 << 10
	// maxKeyText bounds the text of a JobKey, with its separator or its path.
	maxKeyText = 256
	// maxWeights bounds the weights of a queue: each change compares them with the earlier ones. maxWeight bounds each
	// weight, which is how many jobs of a key start in a row.
	maxWeights = 256
	maxWeight  = 1000
)

// parseJobKey parses the value of the policy key: "name before S", "json PATH" or "no".
func parseJobKey(text string) (k JobKey, err error) {
	const usage = "a key reads name before :, or json user.id for a field of the workload, or no"
	if len(text) > maxKeyText {
		return k, fmt.Errorf("a key has at most %d bytes", maxKeyText)
	}
	if text == "no" {
		return k, nil
	}
	if before, found := strings.CutPrefix(text, "name before "); found && before != "" {
		return JobKey{text: text, before: before}, nil
	}
	path, found := strings.CutPrefix(text, "json ")
	if k.path = strings.Split(path, "."); !found {
		return JobKey{}, fmt.Errorf("%q is no key; %s", text, usage)
	}
	for _, name := range k.path {
		if name == "" || strings.ContainsAny(name, "\"\\ ") {
			return JobKey{}, fmt.Errorf("%q is no path; %s", path, usage)
		}
	}
	k.text = text
	return k, nil
}

// parseWeights parses the value of the policy weights, such as "gold=3 free=1": how many jobs of each key start in a
// row.
func parseWeights(text string) (map[string]int, error) {
	const usage = "weights read gold=3 free=1: a key and how many of its jobs start in a row"
	fields := strings.Fields(text)
	if len(fields) > maxWeights {
		return nil, fmt.Errorf("there may be %d weights, not %d", maxWeights, len(fields))
	}
	var weights map[string]int
	for _, f := range fields {
		i := strings.LastIndexByte(f, '=')
		n, err := strconv.Atoi(f[i+1:])
		if i < 0 || err != nil || n < 1 || n > maxWeight {
			return nil, fmt.Errorf("%q is no weight from 1 to %d; %s", f, maxWeight, usage)
		}
		if i > maxKey {
			return nil, fmt.Errorf("the key %.32q... has more than %d bytes", f, maxKey)
		}
		if _, twice := weights[f[:i]]; twice {
			return nil, fmt.Errorf("the key %q has two weights", f[:i])
		}
		if weights == nil {
			weights = make(map[string]int)
		}
		weights[f[:i]] = n
	}
	return weights, nil
}

func (p *Policy) setKey(text string) (err error) {
	p.Key, err = parseJobKey(text)
	return err
}

func (p *Policy) setKeyConcurrency(text string) (err error) {
	p.KeyConcurrency, err = parseCount(text, math.MaxInt32)
	return err
}

func (p *Policy) setFair(text string) error {
	if text != "key" && text != "no" {
		return errors.New("it is key or no")
	}
	p.Fair = text == "key"
	return nil
}

func (p *Policy) setWeights(text string) (err error) {
	p.Weights, err = parseWeights(text)
	return err
}

// CheckJobKeys returns the first error of KeyErrors.
func (p *Policies) CheckJobKeys() error {
	if all := p.KeyErrors(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// KeyErrors returns a PolicyError about each rule for keys that would do nothing. Such a rule lacks another rule, for
// all queues of its pattern, that says what the key of a job is or, for weights, that the keys take turns.
func (p *Policies) KeyErrors() (all []error) {
	for i := range p.rules {
		own := p.rules[i].policy()
		if own.KeyConcurrency == 0 && !own.Fair && len(own.Weights) == 0 {
			continue
		}
		pattern, joined := p.rules[i].Pattern, p.forQueue(p.rules[i].Pattern)
		switch {
		case joined.Key.text != "":
		case own.KeyConcurrency > 0:
			all = append(all, policyError(pattern, "key-concurrency", errNoKey))
		case own.Fair:
			all = append(all, policyError(pattern, "fair", errNoKey))
		default:
			all = append(all, policyError(pattern, "weights", errNoKey))
		}
		if len(own.Weights) > 0 && !joined.Fair {
			all = append(all, policyError(pattern, "weights", "it does nothing without fair: set fair=key as well"))
		}
	}
	return all
}

const errNoKey = "it does nothing without a key: set key as well, for example key='name before :'"

// find returns the key of a job as a view of its name or its workload. A job without the field has the empty key.
func (k *JobKey) find(name, workload []byte) []byte {
	key := name
	if k.path != nil {
		s := scanner{rest: workload[:min(len(workload), maxKeyScan)]}
		key = s.field(k.path)
	} else if i := bytes.Index(name, []byte(k.before)); i >= 0 {
		key = name[:i]
	}
	return key[:min(len(key), maxKey)]
}

// cost is how many steps find takes for a job of size bytes.
func (k *JobKey) cost(size uint32) int {
	if k.path == nil {
		return 0
	}
	return int(min(size, maxKeyScan) >> costShift)
}

// scanner reads JSON up to one field. It stops at the first byte that cannot be JSON, and looks at nothing behind the
// field. It compares and returns strings as they are written, with their escapes.
type scanner struct{ rest []byte }

// field returns the text of the string, number, true or false at a path of members, nil for anything else.
func (s *scanner) field(path []string) []byte {
	for _, name := range path {
		if !s.member(name) {
			return nil
		}
	}
	if s.next() == '"' {
		text, _ := s.text()
		return text
	}
	word := s.word()
	switch {
	case len(word) == 0, len(s.rest) == 0: // the object must go on
		return nil
	case word[0] == '-', '0' <= word[0] && word[0] <= '9', string(word) == "true", string(word) == "false":
		return word
	}
	return nil
}

// next skips white space and returns the next byte, 0 at the end.
func (s *scanner) next() byte {
	s.rest = bytes.TrimLeft(s.rest, " \t\r\n")
	if len(s.rest) == 0 {
		return 0
	}
	return s.rest[0]
}

func (s *scanner) accept(c byte) bool {
	if s.next() != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// member goes to the value of a member of the object that is next.
func (s *scanner) member(name string) bool {
	if !s.accept('{') {
		return false
	}
	for {
		text, ok := s.text()
		if !ok || !s.accept(':') {
			return false
		}
		if string(text) == name {
			return true
		}
		if !s.skip() || !s.accept(',') {
			return false
		}
	}
}

// text reads a string and returns what is between its quotes.
func (s *scanner) text() (text []byte, ok bool) {
	if !s.accept('"') {
		return nil, false
	}
	for i := 0; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '\\':
			i++
		case '"':
			text, s.rest = s.rest[:i], s.rest[i+1:]
			return text, true
		}
	}
	return nil, false
}

// word reads a number, or a literal such as true.
func (s *scanner) word() (word []byte) {
	i := 0
	for i < len(s.rest) && strings.IndexByte(" \t\r\n,:{}[]\"", s.rest[i]) < 0 {
		i++
	}
	word, s.rest = s.rest[:i], s.rest[i:]
	return word
}

// skip reads a value.
func (s *scanner) skip() (ok bool) {
	for depth := 0; ; {
		switch s.next() {
		case 0:
			return false
		case '"':
			_, ok = s.text()
		case '{', '[':
			depth++
			s.rest, ok = s.rest[1:], true
		case '}', ']':
			depth--
			s.rest, ok = s.rest[1:], depth >= 0
		case ',', ':':
			s.rest, ok = s.rest[1:], depth > 0
		default:
			ok = len(s.word()) > 0
		}
		if !ok || depth == 0 {
			return ok
		}
	}
}
