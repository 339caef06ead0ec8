package mongodouble

import (
	"errors"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Codes of refusals about users.
const (
	codeUnauthorized = 13
	codeAuthFailed   = 18
)

// users are those that a double knows.
type users struct {
	source string // the database that knows them
	server *scram.Server
}

// Require has connections authenticate by SCRAM-SHA-256, as one of these users of a
// database, before they are served.
func (s *Server) Require(source string, passwords map[string]string) error {
	known := make(map[string]scram.StoredCredentials)
	for name, password := range passwords {
		client, err := scram.SHA256.NewClient(name, password, "")
		if err != nil {
			return err
		}
		// Four thousand rounds are what drivers accept at least.
		if known[name], err = client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "a double's salt", Iters: 4096}); err != nil {
			return err
		}
	}
	server, err := scram.SHA256.NewServer(func(name string) (scram.StoredCredentials, error) {
		if credentials, ok := known[name]; ok {
			return credentials, nil
		}
		return scram.StoredCredentials{}, errors.New("no such user")
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = &users{source, server}
	return err
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
		p.talk = required.server.NewConversation()
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
		{Key: "payload", Value: bson.Binary{Data: []byte(answer)}}, {Key: "ok", Value: 1.0},
	}, true
}
