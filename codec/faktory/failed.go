package faktory

import (
	"strconv"

	"treadle/codec/jsontext"
)

// Failed is the last failure of a job, as a worker that does it next sees it.
type Failed struct {
	FailedAt  string   `json:"failed_at"` // of the first failure
	NextAt    string   `json:"next_at"`   // of the retry; empty: there is none
	Message   string   `json:"message"`
	Type      string   `json:"errtype"`
	Backtrace []string `json:"backtrace"`
	Count     int64    `json:"retry_count"` // of the failures after the first
	Remaining int64    `json:"remaining"`
}

// Append appends the failure as JSON.
func (f *Failed) Append(dst []byte) []byte {
	dst = appendString(append(dst, `{"failed_at":`...), f.FailedAt)
	dst = appendOptional(dst, `,"next_at":`, f.NextAt)
	dst = appendOptional(dst, `,"message":`, f.Message)
	dst = appendOptional(dst, `,"errtype":`, f.Type)
	for i, line := range f.Backtrace {
		if i == 0 {
			dst = append(dst, `,"backtrace":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendString(dst, line)
	}
	if len(f.Backtrace) > 0 {
		dst = append(dst, ']')
	}
	dst = appendNumber(append(dst, `,"retry_count":`...), f.Count)
	return append(appendNumber(append(dst, `,"remaining":`...), f.Remaining), '}')
}

func appendOptional(dst []byte, key, text string) []byte {
	if text == "" {
		return dst
	}
	return appendString(append(dst, key...), text)
}

func appendString(dst []byte, text string) []byte { return jsontext.AppendFromUTF8(dst, []byte(text)) }

func appendNumber(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }
