package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
)

// The collections of a project's database.
const (
	info       = "info"
	jobs       = "jobs"
	progresses = "progresses"
	statistics = "statistics"
	fullStates = "fullStates"
	states     = "states"
	cars       = "cars"
)

// projectID and projectVersion identify the info document of a project.
const (
	projectID      = "project"
	projectVersion = int32(2)
)

// reserved are MongoDB's own databases.
var reserved = []string{"admin", "local", "config"}

// maxProjectName is MongoDB's limit of a database name in bytes.
const maxProjectName = 63

// CheckProjectName rejects names that no database can have.
func CheckProjectName(name string) error {
	switch {
	case name == "" || len(name) > maxProjectName:
		return fmt.Errorf("a project's name has 1 to %d bytes with --kts46-mongodb: it names a database", maxProjectName)
	case strings.ContainsAny(name, "/\\. \"$*<>:|?\x00"):
		return errors.New(`a project's name has no space and none of / \ . " $ * < > : | ? with --kts46-mongodb: it names a database`)
	case slices.Contains(reserved, name):
		return fmt.Errorf("%s is a database of MongoDB's own: give the project another name", name)
	}
	return nil
}

// HasProject reports whether a project exists.
func (s *Store) HasProject(ctx context.Context, project string) (bool, error) {
	if CheckProjectName(project) != nil {
		return false, nil
	}
	_, found, err := s.find(ctx, project, info, bson.D{{Key: "_id", Value: projectID}, {Key: "v", Value: projectVersion}}, byVersion)
	return found, err
}

var byVersion = bson.D{{Key: "v", Value: 1}}

// needProject returns ErrNoProject unless the project exists.
func (s *Store) needProject(ctx context.Context, project string) error {
	found, err := s.HasProject(ctx, project)
	if err == nil && !found {
		return ErrNoProject
	}
	return err
}

// CreateProject makes a project with the indexes of both versions. It returns ErrTaken if the project exists, DataError
// if the database has an info document that the original workers ignore.
func (s *Store) CreateProject(ctx context.Context, project string) error {
	if err := CheckProjectName(project); err != nil {
		return err
	}
	doc, found, err := s.find(ctx, project, info, byID(projectID), byVersion)
	switch v, _ := number(doc.Lookup("v")); {
	case err != nil:
		return err
	case found && v == float64(projectVersion):
		return ErrTaken
	case found:
		return badData("the database %s has an info document without v: %d, which the original workers do not see: remove or correct it", project, projectVersion)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	db := s.client.Database(project)
	index := func(fields ...string) mongo.IndexModel {
		keys := bson.D{}
		for _, f := range fields {
			keys = append(keys, bson.E{Key: f, Value: 1})
		}
		return mongo.IndexModel{Keys: keys}
	}
	if _, err := db.Collection(states).Indexes().CreateOne(ctx, index("job", "time")); err != nil {
		return err
	}
	if _, err := db.Collection(cars).Indexes().CreateMany(ctx,
		[]mongo.IndexModel{index("job", "state"), index("job", "carid"), index("job", "time")}); err != nil {
		return err
	}
	// A project is complete when its info document exists, so that is written last.
	_, err = db.Collection(info).InsertOne(ctx, bson.D{{Key: "_id", Value: projectID}, {Key: "name", Value: project}, {Key: "v", Value: projectVersion}})
	if mongo.IsDuplicateKeyError(err) {
		return ErrTaken
	}
	return err
}

// DeleteProject drops a project's database. It returns ErrNoProject if the project is missing.
func (s *Store) DeleteProject(ctx context.Context, project string) error {
	if err := s.needProject(ctx, project); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	return s.client.Database(project).Drop(ctx)
}

// Projects lists the names of all projects in order.
func (s *Store) Projects(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	all, err := s.client.ListDatabaseNames(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		found, err := s.HasProject(ctx, name)
		if err != nil {
			return nil, err
		}
		if found {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
