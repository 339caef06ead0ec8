package mongotest

import (
	"crypto/md5"
	"encoding/hex"
	"errors"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// Codes of refusals about users.
const (
	codeUnauthorized = 13
	codeAuthFailed   = 18
)

// users are those that a double knows.
type users struct {
	source    string                   // the database that knows them
	mechanism map[string]*scram.Server // by its name
}

// Require has connections authenticate, as one of these users of a database, before they are served: by SCRAM-SHA-1, or by
// SCRAM-SHA-256 where the double's release has it.
func (s *Server) Require(source string, passwords map[string]string) error {
	sha1, err := scramServer(scram.SHA1, passwords, func(name, password string) (*scram.Client, error) {
		sum := md5.Sum([]byte(name + ":mongo:" + password)) // the server's form of a password before SCRAM-SHA-256
		return scram.SHA1.NewClientUnprepped(name, hex.EncodeToString(sum[:]), "")
	})
	if err != nil {
		return err
	}
	sha256, err := scramServer(scram.SHA256, passwords, func(name, password string) (*scram.Client, error) {
		return scram.SHA256.NewClient(name, password, "")
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = &users{source, map[string]*scram.Server{"SCRAM-SHA-1": sha1, "SCRAM-SHA-256": sha256}}
	return err
}

func scramServer(hash scram.HashGeneratorFcn, passwords map[string]string, client func(name, password string) (*scram.Client, error)) (*scram.Server, error) {
	known := make(map[string]scram.StoredCredentials)
	for name, password := range passwords {
		c, err := client(name, password)
		if err != nil {
			return nil, err
		}
		// Four thousand rounds are what drivers accept at least.
		if known[name], err = c.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "a double's salt", Iters: 4096}); err != nil {
			return nil, err
		}
	}
	return hash.NewServer(func(name string) (scram.StoredCredentials, error) {
		if credentials, ok := known[name]; ok {
			return credentials, nil
		}
		return scram.StoredCredentials{}, errors.New("no such user")
	})
}

// peer is what a connection has said about itself.
type peer struct {
	talk  *scram.ServerConversation
	known bool
}

// admit answers a command about users, or one that a stranger may not run; ok is false for
// all others.
func (s *Server) admit(p *peer, command bson.D) (reply bson.D, ok bool) {
	s.mu.Lock()
	required := s.users
	s.mu.Unlock()
	args, name := document(command), command[0].Key
	switch {
	case required == nil || p.known || name == "hello" || name == "isMaster" || name == "ismaster":
		return nil, false
	case name == "saslStart":
		if source, _ := args.Lookup("$db").StringValueOK(); source != required.source {
			return refused(refusal{codeAuthFailed, "Authentication failed."}), true
		}
		mechanism, _ := args.Lookup("mechanism").StringValueOK()
		server := required.mechanism[mechanism]
		if server == nil || mechanism == "SCRAM-SHA-256" && s.release().Max < wireSHA256 {
			return refused(refusal{2, "Received authentication for mechanism " + mechanism + " which is unknown or not enabled"}), true
		}
		p.talk = server.NewConversation()
	case name != "saslContinue" || p.talk == nil:
		return refused(refusal{codeUnauthorized, "command " + name + " requires authentication"}), true
	}
	_, said, _ := args.Lookup("payload").BinaryOK()
	answer, err := p.talk.Step(string(said))
	if err != nil {
		return refused(refusal{codeAuthFailed, "Authentication failed."}), true
	}
	p.known = p.talk.Done() && p.talk.Valid()
	return bson.D{
		{Key: "conversationId", Value: int32(1)}, {Key: "done", Value: p.talk.Done()},
		{Key: "payload", Value: primitive.Binary{Data: []byte(answer)}}, {Key: "ok", Value: 1.0},
	}, true
}
