package page

import (
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	codec "treadle/codec/admin"
)

// The shapes of charts are drawn in squares of these sizes and stretched to their places. The texts beside them are
// HTML.
const (
	chartWidth, chartHeight = 600, 120
	sparkWidth, sparkHeight = 60, 16
)

// spans are the spans of a chart, with the words of their links.
var spans = []struct{ Name, Text string }{{"5m", "5 min"}, {"1h", "1 h"}, {"24h", "24 h"}}

// chart is what the jobs of a queue, or all jobs, did in a span.
type chart struct {
	Span                    string
	Spans                   []chartSpan
	In, Out, Area, Failed   template.HTMLAttr // paths
	Ready                   template.HTMLAttr
	Top, TopReady           string    // of the scales
	From                    time.Time // of the first slot
	LastIn, LastOut, LastOf string    // the rates of the last whole slot
	LastReady               string
	Label                   string // says it in words
}

type chartSpan struct {
	Name, Text, URL string
	Here            bool
}

// chartOf returns the chart of a queue, or of all jobs. It is nil when nothing is kept of the queue.
func (s *Pages) chartOf(r *http.Request, queue string) (*chart, error) {
	c := &chart{Span: r.URL.Query().Get("span")}
	if c.Span == "" {
		c.Span = spans[0].Name
	}
	for _, sp := range spans {
		at := sp.Name
		if sp.Name == spans[0].Name {
			at = ""
		}
		c.Spans = append(c.Spans, chartSpan{sp.Name, sp.Text, withQuery(r.URL.RequestURI(), "span", at), sp.Name == c.Span})
	}
	var h codec.History
	query := []string{"span", c.Span}
	if queue != "" {
		query = append(query, "queue", queue)
	}
	if err := s.api.get(r, &h, "/history", query...); err != nil {
		if statusOf(err) == http.StatusNotFound {
			return nil, nil
		}
		return nil, err
	}
	c.draw(&h)
	return c, nil
}

// slotsOf are how many slots a span has.
var slotsOf = map[string]int{"5m": 300, "1h": 360, "24h": 1440}

// draw draws a history. The last slot, which is not over, is left out of rates.
func (c *chart) draw(h *codec.History) {
	slots, all := h.Slots, slotsOf[h.Span]
	c.From = time.UnixMilli(h.End).Add(-time.Duration(all*h.Step) * time.Second)
	top, topReady := 0.0, 0.0
	step := float64(h.Step)
	rates := slots
	if len(rates) > 1 {
		rates = rates[:len(rates)-1]
	}
	for i := range rates {
		top = max(top, float64(rates[i].Submitted)/step, float64(rates[i].Done)/step, float64(rates[i].Failed)/step)
	}
	for i := range slots {
		topReady = max(topReady, float64(slots[i].Ready))
	}
	top, topReady = niceTop(top), niceTop(topReady)
	first := all - len(slots)
	x := func(i int) float64 { return float64(first+i) * chartWidth / float64(all-1) }
	in, out, failed, ready := newPath(), newPath(), newPath(), newPath()
	for i := range rates {
		in.line(x(i), chartHeight*(1-float64(rates[i].Submitted)/step/top))
		out.line(x(i), chartHeight*(1-float64(rates[i].Done)/step/top))
		if rates[i].Failed > 0 {
			failed.bar(x(i), chartHeight*(1-float64(rates[i].Failed)/step/top), chartHeight)
		}
	}
	for i := range slots {
		ready.line(x(i), chartHeight*(1-float64(slots[i].Ready)/topReady))
	}
	c.In, c.Out, c.Failed, c.Ready = in.attr(), out.attr(), failed.attr(), ready.attr()
	if len(rates) > 0 {
		c.Area = out.area(x(0), x(len(rates)-1), chartHeight)
		last := rates[len(rates)-1]
		c.LastIn, c.LastOut, c.LastOf = perSecond(float64(last.Submitted)/step), perSecond(float64(last.Done)/step), perSecond(float64(last.Failed)/step)
		c.LastReady = number(slots[len(slots)-1].Ready)
	}
	c.Top, c.TopReady = perSecond(top), number(int64(topReady))
	c.Label = "Jobs a second, last " + c.Span + ": " + c.LastIn + " submitted, " + c.LastOut + " done, " + c.LastOf + " failed; the scale ends at " + c.Top + "."
}

// Middle returns the moment in the middle of the chart.
func (c *chart) Middle() time.Time {
	return c.From.Add(time.Since(c.From) / 2)
}

// niceTop returns the end of a scale: the next number of 1, 2 or 5 with zeros.
func niceTop(most float64) float64 {
	for top := 1.0; ; top *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if most <= n*top {
				return n * top
			}
		}
	}
}

// svgPath is a path of SVG.
type svgPath struct{ b strings.Builder }

func newPath() *svgPath { return new(svgPath) }

// line goes on to a point.
func (p *svgPath) line(x, y float64) {
	letter := byte('L')
	if p.b.Len() == 0 {
		letter = 'M'
	}
	p.b.WriteByte(letter)
	p.number(x)
	p.b.WriteByte(' ')
	p.number(y)
}

// bar is a line from the bottom to y.
func (p *svgPath) bar(x, y, bottom float64) {
	p.b.WriteByte('M')
	p.number(x)
	p.b.WriteByte(' ')
	p.number(bottom)
	p.b.WriteByte('V')
	p.number(y)
}

func (p *svgPath) number(f float64) {
	p.b.Write(strconv.AppendFloat(nil, float64(int(f*10+0.5))/10, 'f', -1, 64))
}

// attr returns the path as the attribute d.
func (p *svgPath) attr() template.HTMLAttr {
	return template.HTMLAttr(`d="` + p.b.String() + `"`) //nolint:gosec // letters and numbers
}

// area returns the path closed along the bottom.
func (p *svgPath) area(from, to, bottom float64) template.HTMLAttr {
	closed := newPath()
	closed.b.WriteString(p.b.String())
	closed.line(to, bottom)
	closed.line(from, bottom)
	closed.b.WriteByte('Z')
	return closed.attr()
}

// spark is the small chart of a queue in a list.
type spark struct {
	svg   template.HTML
	until time.Time // when it has another step
}

// maxSparks bounds the small charts that are kept until their next step.
const maxSparks = 1000

// sparkOf returns the small chart of a queue: jobs done in the last five minutes.
func (s *Pages) sparkOf(r *http.Request, queue string) template.HTML {
	now := time.Now()
	s.mu.Lock()
	kept, ok := s.sparks[queue]
	if len(s.sparks) > maxSparks {
		clear(s.sparks)
	}
	s.mu.Unlock()
	if ok && now.Before(kept.until) {
		return kept.svg
	}
	var h codec.History
	if err := s.api.get(r, &h, "/history", "queue", queue, "step", "5s"); err != nil {
		return "" // a queue that is not one of the busiest has none
	}
	kept = spark{drawSpark(h.Slots, slotsOf["5m"]/h.Step), time.UnixMilli(h.End)}
	s.mu.Lock()
	s.sparks[queue] = kept
	s.mu.Unlock()
	return kept.svg
}

// drawSpark draws the jobs that were done in slots, the last of all so many slots.
func drawSpark(slots []codec.HistorySlot, all int) template.HTML {
	if len(slots) > 1 {
		slots = slots[:len(slots)-1] // the last is not over
	}
	most := uint32(1)
	for i := range slots {
		most = max(most, slots[i].Done)
	}
	first := all - len(slots)
	p := newPath()
	for i := range slots {
		p.line(float64(first+i)*sparkWidth/float64(all-1), 1+(sparkHeight-2)*(1-float64(slots[i].Done)/float64(most)))
	}
	const head = `<svg class="spark" viewBox="0 0 60 16" preserveAspectRatio="none" aria-hidden="true"><path `
	return template.HTML(head + string(p.attr()) + `/></svg>`) //nolint:gosec // letters and numbers
}
