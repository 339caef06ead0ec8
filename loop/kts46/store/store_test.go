package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"

	"treadle/loop/disbatch/mongotest"
)

// site is the MongoDB of one test: a fake, or a real one when the environment names it.
type site struct {
	*Store
	t       *testing.T
	fake    *mongotest.Server // nil with a real one
	ctx     context.Context
	project string // a name that no other test has
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, ctx: t.Context(), project: "treadle_" + primitive.NewObjectID().Hex()}
	uri := os.Getenv("TREADLE_TEST_MONGODB")
	if uri == "" {
		var err error
		s.fake, err = mongotest.Start()
		must(t, err)
		t.Cleanup(s.fake.Stop)
		uri = s.fake.Address()
	}
	var err error
	s.Store, err = Open("mongodb://" + uri + "/")
	must(t, err)
	t.Cleanup(func() {
		_ = s.client.Database(s.project).Drop(context.Background()) // the test has said what it had to say
		s.Close()
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) want(err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		s.t.Errorf("got the error %v, want %v", err, want)
	}
}

func (s *site) collection(name string) *mongo.Collection {
	return s.client.Database(s.project).Collection(name)
}

// shows checks a document in the shell's form, with the types of its numbers.
func (s *site) shows(collection, id, want string) {
	s.t.Helper()
	doc, found, err := s.find(s.ctx, s.project, collection, byID(id), nil)
	must(s.t, err)
	if got := doc.String(); !found || got != want {
		s.t.Errorf("%s/%s is\n%s, want\n%s", collection, id, got, want)
	}
}

func (s *site) insert(collection string, docs ...any) {
	s.t.Helper()
	_, err := s.collection(collection).InsertMany(s.ctx, docs)
	must(s.t, err)
}

func (s *site) add(name, definition string) {
	s.t.Helper()
	d, err := ParseDefinition([]byte(definition))
	must(s.t, err)
	must(s.t, s.AddJob(s.ctx, s.project, name, d))
}

const small = "simulationParameters: {duration: 10, stepDuration: 3, batchLength: 2}\nroad: {length: 100.5, lines: 2}\ntrafficLights: {'1': {position: 30}}\n"

// TestProjects: a project has the documents and indexes that the original workers need, and databases that are none are
// not shown.
func TestProjects(t *testing.T) {
	s := newSite(t)
	has := func(want bool) {
		t.Helper()
		got, err := s.HasProject(s.ctx, s.project)
		must(t, err)
		if got != want {
			t.Errorf("the project is there: %v", got)
		}
		names, err := s.Projects(s.ctx)
		must(t, err)
		if slices.Contains(names, s.project) != want {
			t.Errorf("the projects are %q", names)
		}
	}
	has(false)
	s.insert(states, bson.D{{Key: "_id", Value: "left by a worker"}})
	has(false)
	must(t, s.CreateProject(s.ctx, s.project))
	has(true)
	s.want(s.CreateProject(s.ctx, s.project), ErrTaken)
	s.shows(info, "project", fmt.Sprintf(`{"_id": "project","name": "%s","v": {"$numberInt":"2"}}`, s.project))
	for collection, want := range map[string]string{states: "_id_ job_1_time_1", cars: "_id_ job_1_carid_1 job_1_state_1 job_1_time_1"} {
		indexes, err := s.collection(collection).Indexes().ListSpecifications(s.ctx)
		must(t, err)
		var names []string
		for _, x := range indexes {
			names = append(names, x.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("the indexes of %s are %s, want %s", collection, got, want)
		}
	}
	must(t, s.DeleteProject(s.ctx, s.project))
	has(false)
	s.want(s.DeleteProject(s.ctx, s.project), ErrNoProject)
	s.insert(info, bson.D{{Key: "_id", Value: "project"}}) // of January 2011
	has(false)
	if err := s.CreateProject(s.ctx, s.project); err == nil || !strings.Contains(err.Error(), "without v: 2") {
		t.Errorf("got the error %v", err)
	}
	for _, name := range []string{"", "admin", "local", "config", "a.b", "a b", "a/b", strings.Repeat("x", 64)} {
		if err := s.CreateProject(s.ctx, name); err == nil {
			t.Errorf("a project has the name %q", name)
		}
		if found, err := s.HasProject(s.ctx, name); found || err != nil {
			t.Errorf("%q is a project: %v, %v", name, found, err)
		}
	}
}

// TestJobs: the documents of a job have the fields and types that the original gives them, and what the workers write
// is read.
func TestJobs(t *testing.T) {
	s := newSite(t)
	_, err := s.Job(s.ctx, s.project, "a")
	s.want(err, ErrNoProject)
	must(t, s.CreateProject(s.ctx, s.project))
	_, err = s.Job(s.ctx, s.project, "a")
	s.want(err, ErrNoJob)
	s.insert(progresses, bson.D{{Key: "_id", Value: "a"}, {Key: "done", Value: 7}}) // left by a deletion that was cut off
	s.add("a", small)
	d, err := ParseDefinition([]byte(small))
	must(t, err)
	s.want(s.AddJob(s.ctx, s.project, "a", d), ErrTaken)
	s.want(s.AddJob(s.ctx, s.project+"x", "a", d), ErrNoProject)
	s.shows(jobs, "a", `{"_id": "a","name": "a","definition": {"simulationParameters": {"duration": {"$numberInt":"10"},"stepDuration": {"$numberInt":"3"},"batchLength": {"$numberInt":"2"}},`+
		`"road": {"length": {"$numberDouble":"100.5"},"lines": {"$numberInt":"2"}},"trafficLights": {"1": {"position": {"$numberInt":"30"}}}}}`)
	s.shows(progresses, "a", `{"_id": "a","totalSteps": {"$numberDouble":"3.0"},"batches": {"$numberDouble":"1.0"},"done": {"$numberInt":"0"},`+
		`"basicStatistics": false,"idleTimes": false,"throughput": false,"fullStatistics": false,"jobname": "a"}`)
	s.shows(statistics, "a", `{"_id": "a","average": null,"stdeviation": null,"averageSpeed": null,"idleTimes": {},"thoughput": [],"throughput": [],"finished": false}`)

	want := func(want Job) {
		t.Helper()
		j, err := s.Job(s.ctx, s.project, "a")
		must(t, err)
		if *j != want {
			t.Errorf("the job is %+v, want %+v", *j, want)
		}
	}
	j := Job{Progress: Progress{Name: "a", Total: 3}, Duration: 10, Step: 3, Batch: 2}
	want(j)
	set := func(operator, field string, v any) {
		t.Helper()
		_, err := s.collection(progresses).UpdateOne(s.ctx, byID("a"), bson.D{{Key: operator, Value: bson.D{{Key: field, Value: v}}}})
		must(t, err)
	}
	set("$inc", "done", 4) // one above the total
	j.Done = 4
	want(j)
	s.insert(fullStates, bson.D{{Key: "_id", Value: "a"}, {Key: "data", Value: bson.D{{Key: "lastCardId", Value: 5}}}}, bson.D{{Key: "_id", Value: "b"}, {Key: "data", Value: bson.D{{Key: "lastCarId", Value: 5}}}})
	j.Version = 1
	want(j)
	_, err = s.collection(fullStates).ReplaceOne(s.ctx, byID("a"), bson.D{{Key: "data", Value: bson.D{{Key: "lastCarId", Value: 5}}}})
	must(t, err)
	j.Version = 2
	want(j)
	for field, into := range map[string]*bool{"basicStatistics": &j.Basic, "idleTimes": &j.Idle, "throughput": &j.Throughput, "fullStatistics": &j.Full} {
		set("$set", field, true)
		*into = true
		want(j)
	}
	s.add("b", small)
	all, err := s.Progresses(s.ctx, s.project, 2)
	must(t, err)
	if want := []Progress{j.Progress, {Name: "b", Total: 3}}; !slices.Equal(all, want) {
		t.Errorf("the progresses are %+v, want %+v", all, want)
	}
	_, err = s.Progresses(s.ctx, s.project, 1)
	s.want(err, ErrMany)
	names, err := s.JobNames(s.ctx, s.project, 2)
	must(t, err)
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("the jobs are %q", names)
	}
}

// TestDeleteJob: a job goes with all that its workers have written, and nothing else does.
func TestDeleteJob(t *testing.T) {
	s := newSite(t)
	must(t, s.CreateProject(s.ctx, s.project))
	for _, name := range []string{"a", "b"} {
		s.add(name, small)
		s.insert(fullStates, bson.D{{Key: "_id", Value: name}})
		for _, collection := range []string{states, cars} {
			s.insert(collection, bson.D{{Key: "_id", Value: name + ",0.0"}, {Key: "job", Value: name}}, bson.D{{Key: "_id", Value: name + ",1.0"}, {Key: "job", Value: name}})
		}
	}
	must(t, s.DeleteJob(s.ctx, s.project, "a"))
	s.want(s.DeleteJob(s.ctx, s.project, "a"), ErrNoJob)
	for collection, want := range map[string]int64{jobs: 1, progresses: 1, statistics: 1, fullStates: 1, states: 2, cars: 2} {
		if n, err := s.collection(collection).CountDocuments(s.ctx, bson.D{}); n != want || err != nil {
			t.Errorf("%s has %d documents, %v; want %d", collection, n, err, want)
		}
	}
}

// TestBrokenJobs: documents that cannot be used are refused by name.
func TestBrokenJobs(t *testing.T) {
	s := newSite(t)
	must(t, s.CreateProject(s.ctx, s.project))
	f := func(says string, job, progress any) {
		t.Helper()
		name := primitive.NewObjectID().Hex()
		s.insert(jobs, bson.D{{Key: "_id", Value: name}, {Key: "definition", Value: job}})
		if progress != nil {
			s.insert(progresses, append(bson.D{{Key: "_id", Value: name}}, progress.(bson.D)...))
		}
		if _, err := s.Job(s.ctx, s.project, name); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name) {
			t.Errorf("got the error %v, want one that says %q", err, says)
		}
	}
	good := bson.D{{Key: "simulationParameters", Value: bson.D{{Key: "duration", Value: 1}, {Key: "stepDuration", Value: 0.5}, {Key: "batchLength", Value: int64(3)}}}}
	f("no number", "text", nil)
	f("no number", bson.D{{Key: "simulationParameters", Value: 5}}, nil)
	f("no number batchLength", bson.D{{Key: "simulationParameters", Value: bson.D{{Key: "duration", Value: 1}, {Key: "stepDuration", Value: 0.5}, {Key: "batchLength", Value: "3"}}}}, nil)
	f("no progresses document", good, nil)
	f("done in its progresses", good, bson.D{{Key: "totalSteps", Value: 2.0}})
	f("totalSteps in its progresses", good, bson.D{{Key: "done", Value: 1}, {Key: "totalSteps", Value: -1.0}})
	f("totalSteps in its progresses", good, bson.D{{Key: "done", Value: 1}, {Key: "totalSteps", Value: 1e300}})
}

// TestStatistics: a statistics document is shown as the original shows it.
func TestStatistics(t *testing.T) {
	s := newSite(t)
	must(t, s.CreateProject(s.ctx, s.project))
	_, err := s.Statistics(s.ctx, s.project, "a", false)
	s.want(err, ErrNoJob)
	idle := bson.D{{Key: "values", Value: bson.D{{Key: "0", Value: 1.25}}}, {Key: "average", Value: 1.25}}
	s.insert(statistics, bson.D{
		{Key: "_id", Value: "a"}, {Key: "average", Value: 12.5}, {Key: "stdeviation", Value: nil}, {Key: "idleTimes", Value: idle},
		{Key: "throughput", Value: bson.A{bson.D{{Key: "cars", Value: 7}, {Key: "pos", Value: "end"}}}}, {Key: "finished", Value: true},
	})
	want := func(idle bool, want string) {
		t.Helper()
		shown, err := s.Statistics(s.ctx, s.project, "a", idle)
		must(t, err)
		if got := fmt.Sprint(shown); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	want(true, "[{average 12.5} {stdeviation <nil>} {idleTimes [{values [{0 1.25}]} {average 1.25}]} {throughput [[{cars 7} {pos end}]]} {finished true}]")
	want(false, "[{average 12.5} {stdeviation <nil>} {idleTimes [{average 1.25} {values <nil>}]} {throughput [[{cars 7} {pos end}]]} {finished true}]")
}

// TestMongoUnreachable: calls to a server that is away fail with its address, and work when it is back.
func TestMongoUnreachable(t *testing.T) {
	s := newSite(t)
	if s.fake == nil {
		t.Skip("only a fake can be stopped")
	}
	must(t, s.CreateProject(s.ctx, s.project))
	s.fake.Stop()
	if _, err := s.HasProject(s.ctx, s.project); err == nil || !strings.Contains(err.Error(), s.fake.Address()) {
		t.Errorf("got the error %v, want one that names %s", err, s.fake.Address())
	}
	must(t, s.fake.Resume())
	if found, err := s.HasProject(s.ctx, s.project); err != nil || !found {
		t.Errorf("the project is there: %v, %v", found, err)
	}
}

// TestDefinition: YAML becomes the types that Python's would have in MongoDB; the number of steps follows Python 2's
// division.
func TestDefinition(t *testing.T) {
	const parameters = "simulationParameters: {duration: 10, stepDuration: 3, batchLength: 2}\n"
	f := func(more, want string) {
		t.Helper()
		d, err := ParseDefinition([]byte(parameters + more))
		must(t, err)
		text, err := bson.Marshal(d.document[1:])
		must(t, err)
		if got := bson.Raw(text).String(); got != want {
			t.Errorf("%s: got %s, want %s", more, got, want)
		}
	}
	f("a: [1, -5000000000, 1.5, text, '1', true, null, 2011-02-03T04:05:06Z]",
		`{"a": [{"$numberInt":"1"},{"$numberLong":"-5000000000"},{"$numberDouble":"1.5"},"text","1",true,null,{"$date":{"$numberLong":"1296705906000"}}]}`)
	f("base: &b {x: 1, y: 2}\na: {<<: *b, x: 3}\nc: *b", `{"base": {"x": {"$numberInt":"1"},"y": {"$numberInt":"2"}},"a": {"x": {"$numberInt":"3"},"y": {"$numberInt":"2"}},"c": {"x": {"$numberInt":"1"},"y": {"$numberInt":"2"}}}`)
	for text, want := range map[string][2]float64{
		"{duration: 10, stepDuration: 3, batchLength: 2}": {3, 1}, "{duration: 10.0, stepDuration: 3, batchLength: 2}": {4, 2},
		"{duration: 10, stepDuration: 0.4, batchLength: 100}": {25, 1}, "{duration: 2000, stepDuration: 1, batchLength: 300}": {2000, 6},
	} {
		d, err := ParseDefinition([]byte("simulationParameters: " + text))
		must(t, err)
		if got := [2]float64{d.steps, d.batches}; got != want {
			t.Errorf("%s: %v steps and batches, want %v", text, got, want)
		}
	}

	refused := func(says, more string) {
		t.Helper()
		if _, err := ParseDefinition([]byte(parameters + more)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: got the error %v, want one that says %q", more, err, says)
		}
	}
	refused("line 2: the key \"1\" is no text", "trafficLights: {1: {position: 30}}")
	refused("begins with $ or has a dot", "a.b: 1")
	refused("begins with $ or has a dot", "$set: 1")
	refused("is there twice", "a: 1\na: 2")
	refused("no mapping", "a: {<<: 5}")
	refused("bytes have no place", "a: !!binary aGk=")
	refused("nests deeper", "a: "+strings.Repeat("[", 200)+strings.Repeat("]", 200))
	refused("nests deeper", "a: &a {<<: *a}")
	var bomb strings.Builder
	bomb.WriteString("b0: &b0 [x, x, x, x, x, x, x, x]\n")
	for i := range 20 {
		alias := fmt.Sprintf("*b%d, ", i)
		fmt.Fprintf(&bomb, "b%d: &b%d [%s]\n", i+1, i+1, strings.Repeat(alias, 8))
	}
	refused("more than 15728640 bytes", bomb.String())
	if _, err := ParseDefinition([]byte("[1]")); err == nil {
		t.Error("a list is a definition")
	}
	if _, err := ParseDefinition(nil); err == nil {
		t.Error("nothing is a definition")
	}
}
