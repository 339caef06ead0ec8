package admin

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a filter. A job is compared with each term under a lock of the scheduler.
const (
	// maxFilter bounds the bytes of a filter: it stands in the address of a request.
	maxFilter = 4 << 10
	// maxFilterTerms bounds its terms: a person writes a few.
	maxFilterTerms = 32
	// maxFilterPattern bounds a pattern with * or ?, as those of policies: comparing one takes time in proportion to
	// it.
	maxFilterPattern = 256
	// maxQuoted is how much of a wrong term an error repeats.
	maxQuoted = 64
)

// The states of jobs, as answers and the term state have them.
const (
	StateReady   = "ready"
	StateDelayed = "delayed"
	StateRunning = "running"
	StateLocked  = "locked"
	StateWaiting = "waiting"
	StateFailed  = "failed"
	StateDone    = "done"
	StateExpired = "expired"
)

var jobStates = []string{StateReady, StateDelayed, StateRunning, StateLocked, StateWaiting, StateFailed, StateDone, StateExpired}

// JobStates returns the states of jobs.
func JobStates() []string { return slices.Clone(jobStates) }

// Filter says which jobs are meant: those that meet all of its terms. The zero Filter means all jobs.
type Filter struct {
	Queues   []string // patterns, all of which the queue's name must match
	Names    []string // patterns, all of which the job's name must match
	Workers  []string // parts of the name of the worker that holds, or held, the job
	Texts    []string // parts of its workload, of an error text or of its result; all must be there
	States   []string // one of which the job has; none: any
	ID       string   // as an answer has it; empty: any
	Protocol string   // by which the job came; empty: any
	Priority *Range   // nil: any
	Age      *Range   // in milliseconds; nil: any
}

// Range is from From to To, both included. It is empty when To is less.
type Range struct{ From, To int64 }

// filterTerm is a kind of term. meaning says what may stand behind the colon.
type filterTerm struct {
	key, meaning string
	set          func(f *Filter, value string) error
}

var filterTerms = []filterTerm{
	{"queue", "the name of a queue, or a pattern such as mail.*", func(f *Filter, v string) error { return addPattern(&f.Queues, v) }},
	{"state", "one or more of " + strings.Join(jobStates, ",") + " with a comma between two", (*Filter).setState},
	{"name", "the name of a job, or a pattern such as report-*", func(f *Filter, v string) error { return addPattern(&f.Names, v) }},
	{"id", "the id of a job, such as 5.17.100", func(f *Filter, v string) error { return setOnce(&f.ID, v) }},
	{"priority", "a number, with >, >=, < or <= before it or not", (*Filter).setPriority},
	{"prio", "a number, with >, >=, < or <= before it or not", (*Filter).setPriority},
	{"age", "a time with >, >=, < or <= before it, such as >10m or <1h30m or >2d", (*Filter).setAge},
	{"worker", "a part of a worker's name", func(f *Filter, v string) error { return addPart(&f.Workers, v) }},
	{"protocol", "the name of a protocol, such as periodic", func(f *Filter, v string) error { return setOnce(&f.Protocol, v) }},
	{"text", `a part of a workload, an error text or a result, such as "two words"`, func(f *Filter, v string) error { return addPart(&f.Texts, v) }},
}

// FilterKeys yields the keys of terms, each with what may stand behind its colon.
func FilterKeys() iter.Seq2[string, string] {
	return func(yield func(key, meaning string) bool) {
		for _, t := range filterTerms {
			if !yield(t.key, t.meaning) {
				return
			}
		}
	}
}

// ParseFilter reads a filter: terms such as queue:mail.*, state:failed,done, priority:>5 or text:"two words", with
// blanks between them. A word without a key is a text. It takes any bytes. The error names the wrong term and what may
// stand there.
func ParseFilter(text string) (*Filter, error) {
	if len(text) > maxFilter {
		return nil, fmt.Errorf("a filter has at most %d bytes, not %d", maxFilter, len(text))
	}
	f := new(Filter)
	for n := 0; ; n++ {
		text = strings.TrimLeft(text, blanks)
		switch {
		case text == "":
			return f, nil
		case n == maxFilterTerms:
			return nil, fmt.Errorf("a filter has at most %d terms", maxFilterTerms)
		}
		rest, err := f.term(text)
		if err != nil {
			term, _, _ := strings.Cut(text, " ")
			return nil, fmt.Errorf("%.*q: %w", maxQuoted, term, err)
		}
		text = rest
	}
}

// blanks stand between terms.
const blanks = " \t\r\n"

// Queue returns the name of the one queue whose jobs the filter can mean. ok is false when it may mean those of
// several.
func (f *Filter) Queue() (name string, ok bool) {
	for _, q := range f.Queues {
		if !isPattern(q) {
			return q, true
		}
	}
	return "", false
}

func isPattern(text string) bool { return strings.ContainsAny(text, "*?") }

// term reads the first term of a text and returns the rest.
func (f *Filter) term(text string) (rest string, err error) {
	key := "text"
	if end := strings.IndexAny(text, blanks+`":`); end >= 0 && text[end] == ':' {
		key, text = text[:end], text[end+1:]
	}
	value, rest, err := termValue(text)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(filterTerms, func(t filterTerm) bool { return t.key == key })
	if i < 0 {
		var keys []string
		for _, t := range filterTerms {
			keys = append(keys, t.key)
		}
		return "", fmt.Errorf(`there is no such key, the keys are %s; write text:"..." for a text with a colon`, strings.Join(keys, ", "))
	}
	if err = errNoValue; text != rest { // an empty text in quotes is a value
		err = filterTerms[i].set(f, value)
	}
	if err != nil {
		return "", fmt.Errorf("%w; behind %s: stands %s", err, key, filterTerms[i].meaning)
	}
	return rest, nil
}

// termValue reads the value with which a text begins, and returns the rest behind it.
func termValue(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, blanks+`"`)
		switch {
		case end < 0:
			return text, "", nil
		case text[end] == '"':
			return "", "", errors.New(`a value with a quote stands in quotes as a whole, as in "say \"hi\""`)
		}
		return text[:end], text[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && i+1 < len(text) && strings.IndexByte(blanks, text[i+1]) < 0:
			return "", "", errors.New("a blank must follow the closing quote")
		case c == '"':
			return b.String(), text[i+1:], nil
		case c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			b.WriteByte(text[i])
		case c == '\\':
			return "", "", errors.New(`in quotes, \ stands before " or \ alone`)
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("the closing quote is missing")
}

func addPattern(all *[]string, value string) error {
	if isPattern(value) && len(value) > maxFilterPattern {
		return fmt.Errorf("a pattern has at most %d bytes", maxFilterPattern)
	}
	*all = append(*all, value)
	return nil
}

func addPart(all *[]string, value string) error {
	if value == "" {
		return errNoValue
	}
	*all = append(*all, value)
	return nil
}

func setOnce(to *string, value string) error {
	switch {
	case value == "":
		return errNoValue
	case *to != "":
		return errors.New("a job has only one: the term stands twice")
	}
	*to = value
	return nil
}

var errNoValue = errors.New("the value is missing")

// setState sets the states of the term state:A,B.
func (f *Filter) setState(value string) error {
	if len(f.States) > 0 {
		return errors.New("the term stands twice: join the states with a comma")
	}
	for state := range strings.SplitSeq(value, ",") {
		if !slices.Contains(jobStates, state) {
			return fmt.Errorf("%.*q is no state", maxQuoted, state)
		}
		f.States = append(f.States, state)
	}
	return nil
}

// setPriority narrows the priorities by the term priority:N or priority:>N.
func (f *Filter) setPriority(value string) error {
	operator, number := splitOperator(value)
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case !slices.Contains(operators, operator):
		return fmt.Errorf("%.*q is no sign", maxQuoted, operator)
	case err != nil:
		return fmt.Errorf("%.*q is no whole number", maxQuoted, number)
	}
	narrow(&f.Priority, operator, n)
	return nil
}

// setAge narrows the ages by the term age:>TIME. The sign is required, since no job is exactly of an age.
func (f *Filter) setAge(value string) error {
	operator, text := splitOperator(value)
	age, ok := durationOf(text)
	switch {
	case operator == "":
		return errors.New("the sign is missing")
	case !slices.Contains(operators, operator):
		return fmt.Errorf("%.*q is no sign", maxQuoted, operator)
	case !ok || age < 0 || age > LongestDuration:
		return fmt.Errorf("%.*q is no time", maxQuoted, text)
	}
	narrow(&f.Age, operator, age.Milliseconds())
	return nil
}

// operators are the signs of a range; none means equal.
var operators = []string{"", ">", ">=", "<", "<="}

// splitOperator splits the sign from a value.
func splitOperator(value string) (operator, rest string) {
	rest = strings.TrimLeft(value, "<>=")
	return value[:len(value)-len(rest)], rest
}

// narrow leaves of a range what compares with n as the sign says.
func narrow(r **Range, operator string, n int64) {
	if *r == nil {
		*r = &Range{math.MinInt64, math.MaxInt64}
	}
	v := *r
	switch operator {
	case ">":
		if v.From = max(v.From, n); n == math.MaxInt64 {
			v.To = math.MinInt64
		} else {
			v.From = max(v.From, n+1)
		}
	case ">=":
		v.From = max(v.From, n)
	case "<":
		if n == math.MinInt64 {
			v.From = math.MaxInt64
		}
		v.To = min(v.To, max(n, math.MinInt64+1)-1)
	case "<=":
		v.To = min(v.To, n)
	default:
		v.From, v.To = max(v.From, n), min(v.To, n)
	}
}
