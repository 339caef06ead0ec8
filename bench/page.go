package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page holds a report for the template. Charts are 360 units wide, as a phone is.
type page struct {
	Date     string
	Colours  int
	Notes    []string
	Reached  int
	Targets  [][]string // rows of the targets, the verdict last
	Sections []pageSection
}

type pageSection struct {
	Title  string
	Groups []group
	Text   string // the tables and their legend
}

// group holds the charts of one row, with a bar or a curve for each server, or the charts of a section, with one for
// each row.
type group struct {
	Name   string
	Bars   []chart
	Curves []chart
}

type chart struct {
	Title  string
	Height int
	Series []series
	Ticks  []tick // latencies with a line, of curves
	Steps  []tick // quantiles, of curves
}

// series is one bar or one curve, in the colour of the server or of the row.
type series struct {
	Name, Value string
	Colour      int
	Ours        bool
	Y           int
	Width       float64
	Points      string
}

type tick struct {
	At    float64
	Label string
}

// barFigures have a chart of bars each, curveFigures a chart of curves. A chart without values is left out.
var (
	barFigures = []struct{ figure, title string }{
		{"jobs/s", "jobs a second"}, {"CPU", "server CPU, µs a job"}, {"MB/1M", "MB for 1M queued jobs"},
		{"KB/conn", "KB an idle connection"}, {"connect us", "server CPU, µs a connect"}, {"% of a core", "% of a core"},
	}
	curveFigures = []struct{ figure, title string }{
		{"submit", "from submit to acknowledgement"}, {"to worker", "from submit to a worker"}, {"answer", "from submit to answer"},
	}
)

const (
	chartWidth, barHeight  = 360, 30
	curveHeight, curveLeft = 200, 52 // the height and the left edge of curves
	colours, curveAbove    = 10, 8
)

// pageOf returns the name of the page beside a file of results.
func pageOf(path string) string { return strings.TrimSuffix(path, ".json") + ".html" }

// savePage writes the report as a page with plots.
func (r *report) savePage(path string) error {
	p := page{Date: r.Started.Format("2006-01-02"), Notes: r.circumstances(), Colours: colours, Targets: r.targetTable()[1:]}
	for _, t := range p.Targets {
		if strings.HasPrefix(t[len(t)-1], "reached") {
			p.Reached++
		}
	}
	for _, part := range layouts() {
		if text := r.sectionText(part); text != "" {
			p.Sections = append(p.Sections, pageSection{Title: part.Title, Text: text, Groups: r.groups(part.Section)})
		}
	}
	var text bytes.Buffer
	if err := pageTemplate.Execute(&text, p); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// groups returns a group for each row of a section, or one for all rows when no row has more than one server.
func (r *report) groups(of section) (groups []group) {
	list := r.ofSection(of)
	rows, servers := distinct(list, rowName), distinct(list, serverName)
	if len(rows) == len(list) {
		return []group{newGroup("", list, rowName, rows)}
	}
	for _, row := range rows {
		others := func(s *sample) bool { return s.Row != row }
		groups = append(groups, newGroup(row, slices.DeleteFunc(slices.Clone(list), others), serverName, servers))
	}
	return groups
}

// newGroup draws the samples. A sample's name, one of all, is its label and chooses its colour.
func newGroup(title string, samples []*sample, name func(s *sample) string, all []string) group {
	g := group{Name: title}
	label := func(s *sample) series {
		return series{Name: name(s), Colour: slices.Index(all, name(s)) % colours, Ours: isTreadle(s.Server)}
	}
	for _, of := range barFigures {
		c, most := chart{Title: of.title}, 0.0
		for _, s := range samples {
			most = max(most, s.Figures[of.figure])
		}
		for _, s := range samples {
			if v := s.Figures[of.figure]; v > 0 {
				bar := label(s)
				bar.Value, bar.Y, bar.Width = number(v), c.Height, chartWidth*v/most
				c.Series, c.Height = append(c.Series, bar), c.Height+barHeight
			}
		}
		if most > 0 {
			g.Bars = append(g.Bars, c)
		}
	}
	for _, of := range curveFigures {
		// In a closed loop the wait in the queue depends on the faster side, producers or workers.
		if of.figure == "to worker" && !slices.ContainsFunc(samples, func(s *sample) bool { return s.Rate > 0 }) {
			continue
		}
		if c := curves(of.figure, samples, label); len(c.Series) > 0 {
			c.Title = "latency " + of.title
			g.Curves = append(g.Curves, c)
		}
	}
	return g
}

// curves draws one latency of the samples: the quantiles from left to right, microseconds upwards by decades.
func curves(of string, samples []*sample, label func(s *sample) series) chart {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range samples {
		for _, q := range quantileSteps {
			if v := s.Figures[of+" "+q]; v > 0 {
				low, high = min(low, math.Floor(math.Log10(v))), max(high, math.Ceil(math.Log10(v)))
			}
		}
	}
	if low > high { // nothing was measured
		return chart{}
	}
	high = max(high, low+1)
	x := func(step int) float64 {
		return curveLeft + float64(step)*(chartWidth-curveLeft-24)/float64(len(quantileSteps)-1)
	}
	y := func(log float64) float64 { return curveAbove + curveHeight*(high-log)/(high-low) }
	c := chart{Height: curveHeight + 32}
	for decade := low; decade <= high; decade++ {
		c.Ticks = append(c.Ticks, tick{y(decade), time.Duration(math.Pow(10, decade+3)).String()})
	}
	for i, q := range quantileSteps {
		c.Steps = append(c.Steps, tick{x(i), q})
	}
	for _, s := range samples {
		line := label(s)
		for i, q := range quantileSteps {
			if v := s.Figures[of+" "+q]; v > 0 {
				line.Points += fmt.Sprintf("%.0f,%.1f ", x(i), y(math.Log10(v)))
			}
		}
		if line.Points != "" {
			c.Series = append(c.Series, line)
		}
	}
	return c
}
