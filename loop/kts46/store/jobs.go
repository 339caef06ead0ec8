package store

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Progress is the workers' progress with a job.
type Progress struct {
	Name  string
	Done  int64 // steps; the last batch may end one above Total
	Total int64 // steps
	// The kinds of statistics that are done.
	Basic, Idle, Throughput, Full bool
}

// Job is a job with the parameters of its simulation.
type Job struct {
	Progress
	Duration, Step, Batch float64
	// Version is the version of the workers that began the job; 0: no batch is finished.
	Version int
}

// progressFields are the fields of Progress.
var progressFields = bson.D{
	{Key: "done", Value: 1}, {Key: "totalSteps", Value: 1}, {Key: "basicStatistics", Value: 1}, {Key: "idleTimes", Value: 1},
	{Key: "throughput", Value: 1}, {Key: "fullStatistics", Value: 1},
}

func readProgress(doc bson.Raw) (p Progress, err error) {
	p.Name, _ = doc.Lookup("_id").StringValueOK()
	if p.Done, err = steps(doc, "done"); err != nil {
		return p, err
	}
	if p.Total, err = steps(doc, "totalSteps"); err != nil {
		return p, err
	}
	p.Basic, p.Idle, p.Throughput, p.Full = flag(doc, "basicStatistics"), flag(doc, "idleTimes"), flag(doc, "throughput"), flag(doc, "fullStatistics")
	return p, nil
}

// Job reads a job. It returns ErrNoProject or ErrNoJob if one is missing.
func (s *Store) Job(ctx context.Context, project, name string) (*Job, error) {
	if err := s.needProject(ctx, project); err != nil {
		return nil, err
	}
	doc, found, err := s.find(ctx, project, jobs, byID(name), bson.D{{Key: "definition.simulationParameters", Value: 1}})
	if err != nil || !found {
		return nil, cmpError(err, ErrNoJob)
	}
	var j Job
	parameters := doc.Lookup("definition", "simulationParameters")
	for field, into := range map[string]*float64{"duration": &j.Duration, "stepDuration": &j.Step, "batchLength": &j.Batch} {
		var ok bool
		if in, isDocument := parameters.DocumentOK(); isDocument {
			*into, ok = number(in.Lookup(field))
		}
		if !ok {
			return nil, badData("the job %s in the database %s has no number %s in its definition's simulationParameters", name, project, field)
		}
	}
	doc, found, err = s.find(ctx, project, progresses, byID(name), progressFields)
	if err != nil || !found {
		return nil, cmpError(err, badData("the job %s in the database %s has no progresses document: delete it and add it again", name, project))
	}
	if j.Progress, err = readProgress(doc); err != nil {
		return nil, fmt.Errorf("the job %s in the database %s: %w", name, project, err)
	}
	if j.Done > 0 {
		j.Version, err = s.version(ctx, project, name)
	}
	return &j, err
}

// cmpError returns err, or other if err is nil.
func cmpError(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// version returns the version that began a job, by the spelling of the last car's id.
func (s *Store) version(ctx context.Context, project, name string) (int, error) {
	for version, field := range map[int]string{1: "data.lastCardId", 2: "data.lastCarId"} {
		filter := bson.D{{Key: "_id", Value: name}, {Key: field, Value: bson.D{{Key: "$exists", Value: true}}}}
		if _, found, err := s.find(ctx, project, fullStates, filter, bson.D{{Key: "_id", Value: 1}}); err != nil || found {
			return version, err
		}
	}
	return 0, nil
}

// HasJob reports whether a job exists. It returns ErrNoProject if the project is missing.
func (s *Store) HasJob(ctx context.Context, project, name string) (bool, error) {
	if err := s.needProject(ctx, project); err != nil {
		return false, err
	}
	_, found, err := s.find(ctx, project, jobs, byID(name), bson.D{{Key: "_id", Value: 1}})
	return found, err
}

// AddJob adds a job. It returns ErrNoProject if the project is missing, ErrTaken if the job exists.
func (s *Store) AddJob(ctx context.Context, project, name string, d *Definition) error {
	found, err := s.HasJob(ctx, project, name)
	if err != nil {
		return err
	}
	if found {
		return ErrTaken
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	db := s.client.Database(project)
	// A job is complete when its jobs document exists, so that is written last. The others may exist after a crash and
	// are replaced.
	for collection, doc := range map[string]bson.D{progresses: newProgress(name, d), statistics: newStatistics()} {
		if _, err := db.Collection(collection).ReplaceOne(ctx, byID(name), doc, options.Replace().SetUpsert(true)); err != nil {
			return err
		}
	}
	_, err = db.Collection(jobs).InsertOne(ctx, bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "definition", Value: d.document}})
	if mongo.IsDuplicateKeyError(err) {
		return ErrTaken
	}
	return err
}

// newProgress returns the progresses document of a new job without its id.
func newProgress(name string, d *Definition) bson.D {
	return bson.D{
		{Key: "totalSteps", Value: d.steps}, {Key: "batches", Value: d.batches}, {Key: "done", Value: int32(0)},
		{Key: "basicStatistics", Value: false}, {Key: "idleTimes", Value: false}, {Key: "throughput", Value: false},
		{Key: "fullStatistics", Value: false}, {Key: "jobname", Value: name},
	}
}

// newStatistics returns the statistics document of a new job without its id. It has the fields of both versions, since
// workers of either may get the job.
func newStatistics() bson.D {
	return bson.D{
		{Key: "average", Value: nil}, {Key: "stdeviation", Value: nil}, {Key: "averageSpeed", Value: nil}, {Key: "idleTimes", Value: bson.D{}},
		{Key: "thoughput", Value: bson.A{}}, // the spelling of version 1
		{Key: "throughput", Value: bson.A{}}, {Key: "finished", Value: false},
	}
}

// DeleteJob deletes a job with the documents of its workers. After an error it may be called again. It returns
// ErrNoProject or ErrNoJob if one is missing.
func (s *Store) DeleteJob(ctx context.Context, project, name string) error {
	found, err := s.HasJob(ctx, project, name)
	if err != nil || !found {
		return cmpError(err, ErrNoJob)
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	of := bson.D{{Key: "job", Value: name}}
	for _, c := range []struct {
		collection string
		filter     bson.D
	}{{progresses, byID(name)}, {statistics, byID(name)}, {fullStates, byID(name)}, {states, of}, {cars, of}, {jobs, byID(name)}} {
		if _, err := s.client.Database(project).Collection(c.collection).DeleteMany(ctx, c.filter); err != nil {
			return err
		}
	}
	return nil
}

// Progresses reads the progress of a project's jobs in the order of their names. It returns ErrNoProject if the project
// is missing, ErrMany if there are more than most.
func (s *Store) Progresses(ctx context.Context, project string, most int) (all []Progress, err error) {
	if err := s.needProject(ctx, project); err != nil {
		return nil, err
	}
	err = s.each(ctx, project, progresses, progressFields, func(doc bson.Raw) error {
		if len(all) == most {
			return ErrMany
		}
		p, err := readProgress(doc)
		if err == nil && p.Name != "" {
			all = append(all, p)
		}
		return nil // an unreadable document is skipped
	})
	return all, err
}

// JobNames lists a project's jobs in order. It returns ErrNoProject if the project is missing, ErrMany if there are
// more than most.
func (s *Store) JobNames(ctx context.Context, project string, most int) (names []string, err error) {
	if err := s.needProject(ctx, project); err != nil {
		return nil, err
	}
	err = s.each(ctx, project, jobs, bson.D{{Key: "_id", Value: 1}}, func(doc bson.Raw) error {
		if len(names) == most {
			return ErrMany
		}
		if name, ok := doc.Lookup("_id").StringValueOK(); ok {
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// each reads a collection in the order of ids.
func (s *Store) each(ctx context.Context, project, collection string, fields bson.D, fn func(bson.Raw) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	cursor, err := s.client.Database(project).Collection(collection).Find(ctx, bson.D{},
		options.Find().SetProjection(fields).SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cursor.Close(ctx)) }()
	for cursor.Next(ctx) {
		if err := fn(cursor.Current); err != nil {
			return err
		}
	}
	return cursor.Err()
}
