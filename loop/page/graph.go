package page

import (
	"fmt"
	"html/template"
	"net/http"
	"strings"

	codec "treadle/codec/admin"
)

// The drawing of tasks, in pixels. A column has the tasks of one distance.
const (
	taskWidth, taskHeight = 176, 24
	taskGap, columnGap    = 6, 56
	taskLetters           = 20
)

// neighbourhood is a drawing of the tasks around one, and the same as lists.
type neighbourhood struct {
	Drawing   template.HTML
	Lists     []taskList
	WaitsFor  int // of the task itself
	WaitFor   int
	Shortened bool // there are more than the drawing has
}

// taskList are the tasks of one distance.
type taskList struct {
	Title string
	Rows  []taskRow
}

type taskRow struct {
	codec.GraphTask
	Raw string // its name
	URL string
}

// distances are the titles of the lists, by distance.
var distances = map[int]string{-2: "Before those", -1: "It waits for", 1: "Wait for it", 2: "After those"}

// neighbours returns the neighbourhood of a job; nil: it is no task of a graph.
func (s *Pages) neighbours(r *http.Request, d *codec.JobDetails) (*neighbourhood, error) {
	var g codec.Graph
	if err := s.api.get(r, &g, "/job/graph", "id", d.ID); err != nil {
		if status := statusOf(err); status == http.StatusConflict || status == http.StatusNotFound {
			return nil, nil
		}
		return nil, err
	}
	n := &neighbourhood{WaitsFor: g.Tasks[0].After, WaitFor: g.Tasks[0].Before}
	rows := make([]taskRow, len(g.Tasks))
	for i, t := range g.Tasks {
		rows[i] = taskRow{GraphTask: t, Raw: t.Name + string(t.NameBytes)}
		rows[i].URL = s.url("/job", "queue", d.Queue+string(d.QueueBytes), "name", rows[i].Raw, "protocol", d.Protocol)
	}
	for _, step := range []int{-1, 1, -2, 2} {
		list := taskList{Title: distances[step]}
		for i := range rows {
			if rows[i].Step == step {
				list.Rows = append(list.Rows, rows[i])
			}
		}
		if len(list.Rows) > 0 {
			n.Lists = append(n.Lists, list)
		}
	}
	if len(rows) > 1 {
		n.Drawing = drawGraph(rows, g.Links)
	}
	near := 0
	for i := range rows {
		if step := rows[i].Step; step == 1 || step == -1 {
			near++
		}
	}
	n.Shortened = near < n.WaitsFor+n.WaitFor
	return n, nil
}

// drawGraph draws tasks in columns by distance, those that go first on the left.
func drawGraph(rows []taskRow, links []codec.GraphLink) template.HTML {
	const first = -2
	var heights [5]int
	place := make([][2]int, len(rows))
	for i := range rows {
		column := rows[i].Step - first
		place[i] = [2]int{column, heights[column]}
		heights[column]++
	}
	most, from, to := 0, -1, 0
	for column, n := range heights {
		if most = max(most, n); n > 0 {
			if to = column; from < 0 {
				from = column
			}
		}
	}
	x := func(i int) int { return (place[i][0]-from)*(taskWidth+columnGap) + 1 }
	y := func(i int) int { // a column stands in the middle
		return (place[i][1]*2+most-heights[place[i][0]])*(taskHeight+taskGap)/2 + 1
	}
	width, height := (to-from+1)*(taskWidth+columnGap)-columnGap+2, most*(taskHeight+taskGap)-taskGap+2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="graph" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="Tasks around this one; the lists below have the same."><path class="links" d="`, width, height)
	for _, l := range links {
		ax, ay, bx, by := x(l.From)+taskWidth, y(l.From)+taskHeight/2, x(l.To), y(l.To)+taskHeight/2
		fmt.Fprintf(&b, "M%d %dC%d %d %d %d %d %d", ax, ay, ax+columnGap/2, ay, bx-columnGap/2, by, bx, by)
	}
	b.WriteString(`"/>`)
	for i := range rows {
		class := "task " + rows[i].State
		if i == 0 {
			class += " this"
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="5"/><svg x="%d" y="%d" width="12" height="12" viewBox="0 0 12 12" class="g %s">%s</svg><text x="%d" y="%d">%s</text>`,
			class, x(i), y(i), taskWidth, taskHeight, x(i)+7, y(i)+6, tones[rows[i].State], glyphs[rows[i].State], x(i)+25, y(i)+16,
			template.HTMLEscapeString(shortTask(rows[i].Raw)))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // names are escaped
}

// shortTask returns a name that fits: its end says more than its begin.
func shortTask(name string) string {
	letters := []rune(plain(name))
	if len(letters) > taskLetters {
		return "…" + string(letters[len(letters)-taskLetters+1:])
	}
	return string(letters)
}

// Many writes a count that stops at 1000.
func (n *neighbourhood) Many(count int) string {
	if count > 1000 {
		return "more than 1,000 tasks"
	}
	if count == 1 {
		return "1 task"
	}
	return number(count) + " tasks"
}
