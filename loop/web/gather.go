package web

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// gatherer adds samples to the metrics of a registry. A registry would check and sort each of thousands of values, in
// half of the time of a scrape; their names, labels and order are those of the source here, and promtool checks them in
// a test.
type gatherer struct {
	registry prometheus.Gatherer
	samples  func() []Sample
}

// Gather implements prometheus.Gatherer.
func (g gatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.registry.Gather()
	byName := make(map[string]*dto.MetricFamily)
	for _, s := range g.samples() {
		f := byName[s.Name]
		if f == nil {
			f = &dto.MetricFamily{Name: &s.Name, Help: &s.Help, Type: s.kind().Enum()}
			byName[s.Name] = f
		}
		f.Metric = append(f.Metric, s.metric())
	}
	families = slices.AppendSeq(families, maps.Values(byName))
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return families, err
}

func (s *Sample) kind() dto.MetricType {
	switch {
	case s.Buckets != nil:
		return dto.MetricType_HISTOGRAM
	case s.Counter:
		return dto.MetricType_COUNTER
	default:
		return dto.MetricType_GAUGE
	}
}

// metric returns the value of the sample, with its labels in the order of their names.
func (s *Sample) metric() *dto.Metric {
	m := &dto.Metric{}
	if s.Label != "" {
		m.Label = append(make([]*dto.LabelPair, 0, 2), &dto.LabelPair{Name: &s.Label, Value: &s.LabelValue})
	}
	if s.Second[0] != "" {
		m.Label = append(m.Label, &dto.LabelPair{Name: &s.Second[0], Value: &s.Second[1]})
		if len(m.Label) == 2 && s.Second[0] < s.Label {
			m.Label[0], m.Label[1] = m.Label[1], m.Label[0]
		}
	}
	switch s.kind() {
	case dto.MetricType_HISTOGRAM:
		m.Histogram = &dto.Histogram{SampleCount: &s.Count, SampleSum: &s.Value}
		for _, bound := range slices.Sorted(maps.Keys(s.Buckets)) {
			m.Histogram.Bucket = append(m.Histogram.Bucket, &dto.Bucket{UpperBound: new(bound), CumulativeCount: new(s.Buckets[bound])})
		}
	case dto.MetricType_COUNTER:
		m.Counter = &dto.Counter{Value: &s.Value}
	default:
		m.Gauge = &dto.Gauge{Value: &s.Value}
	}
	return m
}
