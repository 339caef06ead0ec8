package mongotest

import (
	"crypto/md5"
	"encoding/hex"
	"errors"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// Error codes about users.
const (
	codeUnauthorized = 13
	codeAuthFailed   = 18
)

// users holds the users of a fake.
type users struct {
	source    string                   // database of the users
	mechanism map[string]*scram.Server // by name
}

// Require makes connections authenticate as one of the users of a database before any other command, with SCRAM-SHA-1,
// or with SCRAM-SHA-256 if the release of the fake has it.
func (s *Server) Require(source string, passwords map[string]string) error {
	sha1, err := scramServer(scram.SHA1, passwords, func(name, password string) (*scram.Client, error) {
		sum := md5.Sum([]byte(name + ":mongo:" + password)) // form of a password with SCRAM-SHA-1
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

// scramServer returns a server of one mechanism that knows the passwords.
func scramServer(hash scram.HashGeneratorFcn, passwords map[string]string, client func(name, password string) (*scram.Client, error)) (*scram.Server, error) {
	known := make(map[string]scram.StoredCredentials)
	for name, password := range passwords {
		c, err := client(name, password)
		if err != nil {
			return nil, err
		}
		// Drivers accept no fewer than 4096 iterations.
		if known[name], err = c.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "a fake's salt", Iters: 4096}); err != nil {
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

// login is the authentication of one connection.
type login struct {
	conversation *scram.ServerConversation
	done         bool
}

// authenticate answers a command of an authentication, and refuses other commands before it. ok is false for a command
// to run.
func (s *Server) authenticate(p *login, command bson.D) (reply bson.D, ok bool) {
	s.mu.Lock()
	required := s.users
	s.mu.Unlock()
	args, name := document(command), command[0].Key
	switch {
	case required == nil || p.done || name == "hello" || name == "isMaster" || name == "ismaster":
		return nil, false
	case name == "saslStart":
		if source, _ := args.Lookup("$db").StringValueOK(); source != required.source {
			return errorReply(commandError{codeAuthFailed, "Authentication failed."}), true
		}
		mechanism, _ := args.Lookup("mechanism").StringValueOK()
		server := required.mechanism[mechanism]
		if server == nil || mechanism == "SCRAM-SHA-256" && s.release().Max < wireSHA256 {
			return errorReply(commandError{2, "Received authentication for mechanism " + mechanism + " which is unknown or not enabled"}), true
		}
		p.conversation = server.NewConversation()
	case name != "saslContinue" || p.conversation == nil:
		return errorReply(commandError{codeUnauthorized, "command " + name + " requires authentication"}), true
	}
	_, said, _ := args.Lookup("payload").BinaryOK()
	answer, err := p.conversation.Step(string(said))
	if err != nil {
		return errorReply(commandError{codeAuthFailed, "Authentication failed."}), true
	}
	p.done = p.conversation.Done() && p.conversation.Valid()
	return bson.D{
		{Key: "conversationId", Value: int32(1)}, {Key: "done", Value: p.conversation.Done()},
		{Key: "payload", Value: primitive.Binary{Data: []byte(answer)}}, {Key: "ok", Value: 1.0},
	}, true
}
