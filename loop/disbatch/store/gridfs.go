package store

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Names of the two outputs of a task: of its document's fields and of the files in GridFS.
const (
	FileStdout = "stdout"
	FileStderr = "stderr"
)

const (
	// chunkSize is the number of characters in a chunk, as in the original.
	chunkSize = 261120
	// maxFile bounds the bytes that ReadFile returns.
	maxFile = 1 << 30
)

// WriteFile writes an output of a task to GridFS with string chunks, as the original does. The text must be UTF-8. A
// second call with the same id writes only what is missing, since a chunk's id follows from the file's.
func (s *Store) WriteFile(ctx context.Context, id, task primitive.ObjectID, name, text string) error {
	for n, rest := uint32(0), text; rest != ""; n++ {
		cut := CutAfter(rest, chunkSize)
		chunk := bson.D{
			{Key: "_id", Value: chunkID(id, n)}, {Key: "files_id", Value: id}, {Key: "n", Value: int32(n)}, {Key: "data", Value: rest[:cut]},
		}
		if _, err := s.chunks.InsertOne(ctx, chunk); err != nil && !mongo.IsDuplicateKeyError(err) {
			return fmt.Errorf("cannot write a chunk of %s: %w", name, err)
		}
		rest = rest[cut:]
	}
	sum := md5.Sum([]byte(text))
	_, err := s.files.InsertOne(ctx, bson.D{
		{Key: "_id", Value: id}, {Key: "uploadDate", Value: primitive.NewDateTimeFromTime(time.Now())}, {Key: "filename", Value: name},
		{Key: "chunkSize", Value: int32(chunkSize)}, {Key: "length", Value: int64(len(text))}, {Key: "md5", Value: hex.EncodeToString(sum[:])},
		{Key: "metadata", Value: bson.D{{Key: "task_id", Value: task}}},
	})
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}

// chunkID returns the id of a chunk: the time of the file's id, and a hash of that id and the chunk's number.
func chunkID(file primitive.ObjectID, n uint32) primitive.ObjectID {
	sum := md5.Sum(binary.BigEndian.AppendUint32(file[:], n))
	id := file
	copy(id[4:], sum[:8])
	return id
}

// ReadFile reads a file of GridFS. Chunks may be strings or binary.
func (s *Store) ReadFile(ctx context.Context, id primitive.ObjectID) (string, error) {
	file, err := s.files.FindOne(ctx, byID(id)).Raw()
	if err != nil {
		return "", notFound(err)
	}
	text, err := s.readChunks(ctx, id, maxFile+1)
	if err != nil {
		return "", err
	}
	if len(text) > maxFile {
		return "", fmt.Errorf("the file %s is over %dMiB", id.Hex(), maxFile>>20)
	}
	if length, ok := Integer(file.Lookup("length")); ok && length != int64(len(text)) && length != int64(utf8.RuneCountInString(text)) {
		return "", fmt.Errorf("the file %s is damaged: %d of its %d bytes are there", id.Hex(), len(text), length)
	}
	return text, nil
}

// FileBeginning reads the first bytes of a file of GridFS, at most that many.
func (s *Store) FileBeginning(ctx context.Context, id primitive.ObjectID, bytes int) (string, error) {
	text, err := s.readChunks(ctx, id, bytes)
	return text[:min(len(text), bytes)], err
}

// readChunks reads the chunks of a file until it has so many bytes, or all.
func (s *Store) readChunks(ctx context.Context, id primitive.ObjectID, bytes int) (string, error) {
	find := options.Find().SetSort(bson.D{{Key: "n", Value: 1}})
	if bytes <= chunkSize {
		find.SetBatchSize(1)
	}
	cursor, err := s.chunks.Find(ctx, bson.D{{Key: "files_id", Value: id}}, find)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	want := int64(0)
	for chunk, err := range stream(ctx, cursor) {
		if err != nil {
			return "", err
		}
		if n, ok := Integer(chunk.Lookup("n")); !ok || n != want {
			return "", fmt.Errorf("the file %s is damaged: chunk %d is missing", id.Hex(), want)
		}
		want++
		data := chunk.Lookup("data")
		switch data.Type {
		case bson.TypeString:
			b.WriteString(Text(data))
		case bson.TypeBinary:
			_, bytes, _ := data.BinaryOK()
			b.Write(bytes)
		default:
			return "", fmt.Errorf("the file %s is damaged: a chunk is of the type %s", id.Hex(), data.Type)
		}
		if b.Len() >= bytes {
			break
		}
	}
	return b.String(), nil
}

// FileLength returns the length of a file of GridFS in bytes.
func (s *Store) FileLength(ctx context.Context, id primitive.ObjectID) (int64, error) {
	file, err := s.files.FindOne(ctx, byID(id)).Raw()
	if err != nil {
		return 0, notFound(err)
	}
	n, ok := Integer(file.Lookup("length"))
	if !ok {
		return 0, fmt.Errorf("the file %s has no length", id.Hex())
	}
	return n, nil
}
